package parity

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/sdp"
)

// plainScripts dial servers, or serve clients, that do not use SDP.
var plainScripts = []script{
	{name: "dial a plain server", stacks: local, run: func(r *run) {
		ln, err := net.Listen("tcp", ownAddress)
		check(err)
		got := make(chan string, 1)
		go func() {
			c, err := ln.Accept()
			check(err)
			b, err := io.ReadAll(c)
			got <- fmt.Sprintf("%q, then %s", b, describe(err))
		}()
		c, err := r.Dialer(0).Dial("tcp", ln.Addr().String())
		check(err)
		_, err = c.Write([]byte("the client's data"))
		r.note("Write", describe(err))
		check(c.Close())
		r.note("the server reads", <-got)
	}},
	{name: "dial a plain server on a Unix socket", run: func(r *run) {
		ln, err := net.Listen("unix", "")
		check(err)
		got := make(chan string, 1)
		go func() {
			c, err := ln.Accept()
			check(err)
			b, err := io.ReadAll(c)
			got <- fmt.Sprintf("%q, then %s, from %q", b, describe(err), c.RemoteAddr())
		}()
		c, err := r.Dialer(0).Dial("unix", ln.Addr().String())
		check(err)
		r.note("the connection", fmt.Sprintf("%T from %q", c, c.LocalAddr()))
		_, err = c.Write([]byte("the client's data"))
		check(err)
		check(c.Close())
		r.note("the server reads", <-got)
	}},
	{name: "8 dials to servers of one connection", stacks: local, run: func(r *run) {
		for range 8 {
			ln, err := net.Listen("tcp", ownAddress)
			check(err)
			go func() {
				c, err := ln.Accept()
				check(err)
				ln.Close()
				io.Copy(c, c)
				c.Close()
			}()
			r.note("echo", r.plainEcho(ln.Addr().String(), nil))
		}
	}},
	{name: "dial from a port", stacks: local, run: func(r *run) {
		ln, err := net.Listen("tcp", ownAddress)
		check(err)
		echoPlain(ln)
		free, err := net.Listen("tcp", ownAddress)
		check(err)
		check(free.Close())
		r.note("echo", r.plainEcho(ln.Addr().String(), free.Addr()))
	}},
	{name: "4 dials to an address that drops SYNs", run: func(r *run) {
		address := fullBacklog()
		var dials sync.WaitGroup
		for i := range 4 {
			dials.Go(func() {
				err := r.dial(context.Background(), 500*time.Millisecond, address)
				timeout, ok := err.(net.Error) // package net's error may be one of two, so only its kind is compared
				r.note(fmt.Sprint("dial ", i), fmt.Sprint(ok && timeout.Timeout()))
			})
		}
		dials.Wait()
	}},
	{name: "a short deadline and later dials", run: func(r *run) {
		ln, err := r.Listen()
		check(err)
		for range 5 {
			r.dial(context.Background(), time.Microsecond, ln.Addr().String())
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		c, err := r.Dialer(0).Dial("tcp", ln.Addr().String())
		check(err)
		r.must("the next dial is the stack's", r.carries(c) == nil)
	}},
	{name: "a server that sends first to a plain client", stacks: local, run: func(r *run) {
		if r.config != nil { // the client must not wait for it
			r.config.HandshakeTimeout = time.Hour
		}
		ln, err := r.Listen()
		check(err)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				c.Write([]byte("220 ready\r\n"))
				c.Close()
			}
		}()
		for range 5 {
			c, err := net.Dial("tcp", ln.Addr().String())
			check(err)
			got, err := io.ReadAll(c)
			r.note("the client reads", fmt.Sprintf("%q, then %s", got, describe(err)))
		}
	}},
	{name: "Accept in the order of arrival", stacks: local, run: func(r *run) {
		ln, err := r.Listen()
		check(err)
		var dialled []string
		for range 3 { // they send nothing, and the program accepts only after all have dialled
			plain, err := net.Dial("tcp", ln.Addr().String())
			check(err)
			dialled = append(dialled, plain.LocalAddr().String())
		}
		var accepted []string
		for range dialled {
			s, err := ln.Accept()
			check(err)
			accepted = append(accepted, s.RemoteAddr().String())
		}
		r.must("it is the order of the dials", fmt.Sprint(accepted) == fmt.Sprint(dialled))
	}},
}

// plainEcho dials an echo server and describes the result.
func (r *run) plainEcho(address string, local net.Addr) string {
	nd := &net.Dialer{LocalAddr: local}
	var d dialer = nd
	if r.config != nil {
		d = &sdp.Dialer{NetDialer: nd, Config: r.config}
	}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return describe(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		return describe(err)
	}
	b := make([]byte, 5)
	_, err = io.ReadFull(c, b)
	return fmt.Sprintf("%q, %s", b, describe(err))
}

func echoPlain(ln net.Listener) {
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
}

// fullBacklog returns the address of a listener whose queue is full, so that the kernel drops
// further SYNs.
func fullBacklog() string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	check(err)
	check(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	check(err)
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(name.(*syscall.SockaddrInet4).Port))
	for err = nil; err == nil; {
		_, err = (&net.Dialer{Timeout: time.Second}).Dial("tcp", address)
	}
	return address
}
