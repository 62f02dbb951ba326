// Scale makes two processes open and close connections, up to a thousand per second, for a
// given time on each device.
//
//	go run ./test/scale -duration 1m
//
// Each connection exchanges a few bytes, which shows that the peer has accepted it. For each
// device Scale prints the rate, the cost and the duration of a connection, and what both
// processes hold before and after. The exit status is 1 if a connection failed, or if
// something leaked.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// serveVariable makes the program the second process. Its value is the device.
const serveVariable = "SCALE_SERVE"

// profileVariable makes the second process write a CPU profile to the named file.
const profileVariable = "SCALE_PROFILE"

func main() {
	duration := flag.Duration("duration", time.Minute, "how long to run on each device")
	devices := flag.String("devices", "shm,iwarp", "`list` of devices, used one after the other")
	rate := flag.Int("rate", 1000, "connections per second")
	beside := flag.Int("beside", 64, "maximum number of open connections")
	profile := flag.String("profile", "", "write CPU profiles of both processes to this `directory`")
	flag.Parse()
	if device := os.Getenv(serveVariable); device != "" {
		fail(runServer(device))
		return
	}
	for device := range strings.SplitSeq(*devices, ",") {
		c := churn{device: device, rate: *rate, beside: *beside, profile: *profile}
		r, err := c.run(*duration)
		fail(err)
		fmt.Println(r)
	}
}

// fail ends the program if there was an error.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}
