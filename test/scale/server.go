package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// tcp is the device that is none: what package net's own connections cost.
const tcp = "tcp"

// anyDevice is what a program uses that says nothing.
const anyDevice = "any"

// config has times that a busy machine does not reach.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: []string{device}, ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// answer is what the second process says each time that it is asked.
type answer struct {
	Held   traffic.Held
	Active int64 // connections
	Failed int64
	First  string // failure
	CPU    time.Duration
}

// addresses are where it listens. A closed connection keeps its client's port for
// a minute, and an address has 28,000 of them.
var addresses = []string{"127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"}

// beServer is the second process: it answers what comes over connections, until
// its standard input ends.
func beServer(device string) error {
	if name := os.Getenv(profileVariable); name != "" {
		stop, err := profileTo(name)
		if err != nil {
			return err
		}
		defer stop()
	}
	var active, failed atomic.Int64
	var first atomic.Pointer[string]
	var listening []string
	for _, address := range addresses {
		ln, err := listen(device, address)
		if err != nil && len(listening) > 0 {
			break // not every system has all of 127.0.0.0/8
		}
		if err != nil {
			return err
		}
		defer ln.Close()
		listening = append(listening, ln.Addr().String())
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					active.Add(1)
					defer active.Add(-1)
					if err := reply(c); err != nil {
						text := err.Error()
						first.CompareAndSwap(nil, &text)
						failed.Add(1)
					}
				}()
			}
		}()
	}
	return traffic.Answers(strings.Join(listening, " "), func() any {
		a := answer{Held: traffic.Holds(), Active: active.Load(), Failed: failed.Load(), CPU: processorTime()}
		if text := first.Load(); text != nil {
			a.First = *text
		}
		return a
	})
}

func listen(device, address string) (net.Listener, error) {
	switch device {
	case tcp:
		return net.Listen("tcp", address)
	case anyDevice:
		return sdp.Listen("tcp", address)
	}
	lc := sdp.ListenConfig{Config: config(device)}
	return lc.Listen(context.Background(), "sdp", address)
}

// word is what goes over a connection, in each direction.
const word = 8

// reply sends back what has come, until the end.
func reply(c net.Conn) error {
	defer c.Close()
	b := make([]byte, word)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	if n, err := c.Read(b); err != io.EOF {
		return fmt.Errorf("%d bytes and %v behind a word, not the end", n, err)
	}
	return nil
}

// profileTo begins a CPU profile.
func profileTo(name string) (stop func(), err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
