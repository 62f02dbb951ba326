// Soak has two processes do everything that connections do, for as long as it is
// told, on one device after the other: sessions of all sizes beside each other,
// deadlines that pass in the middle of calls, half-closes, resets, and a new
// connection for each. Every byte is checked, and hashed at both ends. When a
// device's time is over nothing may be left: memory, descriptors, goroutines and
// areas of shared memory are what they were behind its first tenth.
//
//	go run ./test/soak -duration 2m
//
// It prints what it did, and exits with 1 if anything was wrong.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// serveVariable makes the program the second process, on the device that it names.
const serveVariable = "SOAK_SERVE"

func main() {
	duration := flag.Duration("duration", 2*time.Minute, "how long, for all devices together")
	devices := flag.String("devices", "shm,iwarp", "the devices, one after the other")
	conns := flag.Int("conns", 16, "connections beside each other")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the first session; each of the others has the next one")
	flag.Parse()
	if device := os.Getenv(serveVariable); device != "" {
		fail(beServer(device))
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
