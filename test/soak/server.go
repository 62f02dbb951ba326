package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// answer is the second process's answer to a request.
type answer struct {
	Held         traffic.Held
	Active       int64 // active sessions
	Failed       int64
	FirstFailure string
}

// config returns a configuration with timeouts that a busy machine does not reach.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: []string{device}, ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// addresses are the addresses where the server listens. A closed connection occupies its
// client's port for a minute, and there are only 28,000 ports for each address.
var addresses = []string{"127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"}

// runServer is the second process. It serves sessions until its standard input ends, and
// answers each line of the input.
func runServer(device string) error {
	var active, failed atomic.Int64
	var first atomic.Pointer[string]
	var listening []string
	for _, address := range addresses {
		lc := sdp.ListenConfig{Config: config(device)}
		ln, err := lc.Listen(context.Background(), "sdp", address)
		if err != nil && len(listening) > 0 {
			break // some systems lack parts of 127.0.0.0/8
		}
		if err != nil {
			return err
		}
		defer ln.Close()
		listening = append(listening, ln.Addr().String())
		go accept(ln, func(c net.Conn) {
			active.Add(1)
			defer active.Add(-1)
			if _, err := traffic.Serve(c); err != nil {
				text := err.Error()
				first.CompareAndSwap(nil, &text)
				failed.Add(1)
			}
		})
	}
	return traffic.Answer(strings.Join(listening, " "), func() any {
		a := answer{Active: active.Load(), Failed: failed.Load()}
		if text := first.Load(); text != nil {
			a.FirstFailure = *text
		}
		a.Held = traffic.HeldNow()
		return a
	})
}

// accept serves every connection on its own goroutine until the listener is closed.
func accept(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}
