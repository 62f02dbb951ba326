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

// tcp stands for package net's connections, for comparison.
const tcp = "tcp"

// anyDevice stands for the default configuration.
const anyDevice = "any"

// config returns a configuration with timeouts that a busy machine does not reach.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: []string{device}, ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// answer is the second process's answer to a request.
type answer struct {
	Held   traffic.Held
	Active int64 // open connections
	Failed int64
	First  string // the first failure
	CPU    time.Duration
}

// addresses are the addresses where the server listens. A closed connection occupies its
// client's port for a minute, and there are only 28,000 ports for each address.
var addresses = []string{"127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"}

// runServer is the second process. It echoes one word per connection, until its standard input
// ends.
func runServer(device string) error {
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
			break // some systems lack parts of 127.0.0.0/8
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
	return traffic.Answer(strings.Join(listening, " "), func() any {
		a := answer{Held: traffic.HeldNow(), Active: active.Load(), Failed: failed.Load(), CPU: processorTime()}
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

// word is the number of bytes sent in each direction of a connection.
const word = 8

// reply echoes a word and waits for the end of the stream.
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
		return fmt.Errorf("%d bytes and %v after a word instead of the end", n, err)
	}
	return nil
}

// profileTo starts a CPU profile.
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
