// Soak makes two processes do everything that connections can do, for a given time on each
// device. Half of the time it runs concurrent sessions of all sizes, with deadlines that
// expire during calls, half-closes and resets, each on a new connection. Then it opens and
// closes connections for short sessions, up to a thousand per second. Both ends check and
// hash every byte. At the end, nothing may have leaked: memory, descriptors, goroutines and
// shared memory areas must be the same as after a warm-up.
//
//	go run ./test/soak -duration 2m
//
// It prints what it did. The exit status is 1 if anything was wrong.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// serveVariable makes the program the second process. Its value is the device.
const serveVariable = "SOAK_SERVE"

func main() {
	duration := flag.Duration("duration", 2*time.Minute, "how long to run, for all devices together")
	devices := flag.String("devices", "shm,iwarp", "`list` of devices, used one after the other")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the first session; it increases by one for each session")
	flag.Parse()
	if device := os.Getenv(serveVariable); device != "" {
		fail(runServer(device))
		return
	}
	fmt.Printf("seed %d\n", *seed)
	list := strings.Split(*devices, ",")
	for _, device := range list {
		for _, l := range loads {
			summary, err := run(device, l, *duration/time.Duration(len(list)*len(loads)), *seed)
			fail(err)
			fmt.Println(summary)
		}
	}
}

// fail ends the program if there was an error.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
