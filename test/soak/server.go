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

// tally is what an end has to tell of its sessions.
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

// answer is what the second process says each time that it is asked.
type answer struct {
	Held           traffic.Held
	Active         int64 // sessions under way
	Sessions       int64
	Sent, Got      int64
	Failed         int64
	FirstFailure   string
	Resets, Passed int64
}

// config has times that a busy machine does not reach.
func config(device string) *sdp.Config {
	return &sdp.Config{
		Devices: []string{device}, ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: time.Minute,
	}
}

// beServer is the second process: it serves sessions until its standard input
// ends, and answers each line of that.
func beServer(device string) error {
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
	err = traffic.Answers(ln.Addr().String(), func() any {
		a := answer{
			Active: active.Load(), Sessions: all.Sessions.Load(), Failed: failed.Load(),
			Sent: all.Sent.Load(), Got: all.Got.Load(), Resets: all.Resets.Load(), Passed: all.Passed.Load(),
		}
		if text := first.Load(); text != nil {
			a.FirstFailure = *text
		}
		a.Held = traffic.Holds()
		return a
	})
	return errors.Join(err, ln.Close())
}

// accept serves every connection in a goroutine of its own, until the listener is
// closed.
func accept(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}

// ask returns what the second process holds, once none of its sessions is under way.
func ask(server *traffic.Second) (a answer, err error) {
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := server.Ask(&a); err != nil || a.Active == 0 {
			return a, err
		}
		if time.Now().After(until) {
			return a, fmt.Errorf("%d sessions of the second process go on though all of the first have ended", a.Active)
		}
	}
}
