// Soak makes two processes do everything that connections can do, for a given time on each
// device: concurrent sessions of all sizes, deadlines that expire during calls, half-closes
// and resets, each on a new connection. Both ends check and hash every byte. At the end,
// nothing may have leaked: memory, descriptors, goroutines and shared memory areas must be
// the same as after the first tenth of the time.
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
	conns := flag.Int("conns", 16, "number of concurrent connections")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the first session; it increases by one for each session")
	flag.Parse()
	if device := os.Getenv(serveVariable); device != "" {
		fail(runServer(device))
		return
	}
	list := strings.Split(*devices, ",")
	fmt.Printf("seed %d\n", *seed)
	for _, device := range list {
		s := soak{device: device, conns: *conns}
		s.seed.Store(*seed)
		fail(s.run(*duration / time.Duration(len(list))))
	}
}

// fail ends the program if there was an error.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
