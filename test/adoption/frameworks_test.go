package adoption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRawAccept has a program accept from the descriptor of a listener by itself, as frameworks for
// sockets do, which take it by File or by Control. No byte reaches it that its client did not write,
// and the connections of a listener whose descriptor only got an option move.
func TestRawAccept(t *testing.T) {
	want(t, "short")
	dir := module(t, map[string]string{"main.go": rawAccept})
	buildFor(t, dir, moving)
	connections := newReport(t)
	require.Equal(t, "ok\n", moving.run(t, dir, connections))
	require.Equal(t, 1, connections.count(t, "accept", "shm"), "of the listener with an option")
}

const rawAccept = `package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"syscall"
	"time"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func listen(ip net.IP) *net.TCPListener {
	return must(net.ListenTCP("tcp", &net.TCPAddr{IP: ip}))
}

// exchange has the program accept from fd, and echo a line to each of three clients.
func exchange(ln net.Listener, fd int) {
	syscall.SetNonblock(fd, false)
	go func() {
		for range 3 {
			s, _, err := syscall.Accept(fd)
			if err != nil {
				log.Fatal(err)
			}
			b := make([]byte, 1000)
			n := must(syscall.Read(s, b))
			if string(b[:n]) != "mine" {
				log.Fatalf("the client never wrote %q", b[:n])
			}
			must(syscall.Write(s, b[:n]))
			syscall.Close(s)
		}
	}()
	for range 3 {
		c := must(net.Dial("tcp", ln.Addr().String()))
		must(c.Write([]byte("mine")))
		if got := string(must(io.ReadAll(c))); got != "mine" {
			log.Fatal(got)
		}
		c.Close()
	}
}

func main() {
	ln := listen(net.IPv4(127, 0, 0, 1))
	exchange(ln, int(must(ln.File()).Fd()))

	ln = listen(net.IPv4(127, 0, 0, 1))
	var copied int
	must(ln.SyscallConn()).Control(func(fd uintptr) { copied = must(syscall.Dup(int(fd))) })
	exchange(ln, copied)

	ln = listen(net.IPv4(127, 0, 0, 1))
	must(ln.SyscallConn()).Control(func(fd uintptr) {
		if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<16); err != nil {
			log.Fatal(err)
		}
	})
	ln.SetDeadline(time.Now().Add(-time.Second))
	if _, err := ln.Accept(); err == nil {
		log.Fatal("accepted nobody")
	}
	ln.SetDeadline(time.Time{})
	go func() {
		c := must(ln.Accept())
		io.Copy(c, c)
		c.Close()
	}()
	c := must(net.Dial("tcp", ln.Addr().String()))
	for range 100 {
		must(c.Write([]byte("again")))
		must(io.ReadFull(c, make([]byte, 5)))
	}
	must(c.Write([]byte("mine")))
	c.(*net.TCPConn).CloseWrite()
	if got := string(must(io.ReadAll(c))); got != "mine" {
		log.Fatal(got)
	}
	fmt.Println("ok")
}
`
