// Scale has two processes open and close connections, a thousand each second if
// the machine can, for as long as it is told, on one device after the other.
//
//	go run ./test/scale -duration 1m
//
// On each connection a few bytes go there and back, which shows that the peer has
// accepted it. Behind each device Scale prints the rate that it has reached, what
// a connection costs, how long one takes, and what both processes hold before and
// after. It exits with 1 if a connection has failed, or if something is left.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// serveVariable makes the program the second process, on the device that it names.
const serveVariable = "SCALE_SERVE"

// profileVariable has the second process leave a CPU profile in the file that it
// names.
const profileVariable = "SCALE_PROFILE"

func main() {
	duration := flag.Duration("duration", time.Minute, "how long, for each device")
	devices := flag.String("devices", "shm,iwarp", "the devices, one after the other")
	rate := flag.Int("rate", 1000, "connections in a second")
	beside := flag.Int("beside", 64, "connections beside each other, at most")
	profile := flag.String("profile", "", "leave CPU profiles of both processes in this `directory`")
	flag.Parse()
	if device := os.Getenv(serveVariable); device != "" {
		fail(beServer(device))
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
