package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/traffic"
)

// tally sums up an end's sessions.
type tally struct {
	Sessions, Resets, Passed atomic.Int64
	Sent, Got                atomic.Int64
}

func (t *tally) add(r traffic.Result) {
	t.Sessions.Add(1)
	t.Passed.Add(int64(r.Passed))
	t.Sent.Add(int64(r.Sent))
	t.Got.Add(int64(r.Got))
	if r.Reset {
		t.Resets.Add(1)
	}
}

// answer is the second process's answer to a request.
type answer struct {
	Held           traffic.Held
	Active         int64 // active sessions
	Sessions       int64
	Sent, Got      int64
	Failed         int64
	FirstFailure   string
	Resets, Passed int64
}

// config returns a configuration with timeouts that a busy machine does not reach.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: []string{device}, ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// runServer is the second process. It serves sessions until its standard input ends, and
// answers each line of the input.
func runServer(device string) error {
	lc := sdp.ListenConfig{Config: config(device)}
	ln, err := lc.Listen(context.Background(), "sdp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var all tally
	var active, failed atomic.Int64
	var first atomic.Pointer[string]
	go accept(ln, func(c net.Conn) {
		active.Add(1)
		defer active.Add(-1)
		r, err := traffic.Serve(c)
		all.add(r)
		if err != nil {
			text := err.Error()
			first.CompareAndSwap(nil, &text)
			failed.Add(1)
		}
	})
	err = traffic.Answer(ln.Addr().String(), func() any {
		a := answer{
			Active: active.Load(), Sessions: all.Sessions.Load(), Failed: failed.Load(),
			Sent: all.Sent.Load(), Got: all.Got.Load(), Resets: all.Resets.Load(), Passed: all.Passed.Load(),
		}
		if text := first.Load(); text != nil {
			a.FirstFailure = *text
		}
		a.Held = traffic.HeldNow()
		return a
	})
	return errors.Join(err, ln.Close())
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

// ask waits until the second process has no active session, and returns its answer.
func ask(server *traffic.Second) (a answer, err error) {
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := server.Ask(&a); err != nil || a.Active == 0 {
			return a, err
		}
		if time.Now().After(until) {
			return a, fmt.Errorf("%d sessions are active in the second process although all have ended in the first", a.Active)
		}
	}
}
