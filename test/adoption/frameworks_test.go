package adoption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRawAccept has a program accept from the descriptor of a listener by itself, as frameworks for
// sockets do, which take it by File or by Control. No byte reaches it that its client did not write,
// no client waits, and a listener whose descriptor only got an option serves SDP.
func TestRawAccept(t *testing.T) {
	want(t, "short")
	dir := module(t, map[string]string{"main.go": rawAccept})
	run(t, dir, env(), sdp(t), "build", "-o", "program", ".")
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			connections := newReport(t)
			require.Equal(t, "ok\n", runProgram(t, dir, device, connections))
			require.Equal(t, 1, connections.count(t, "accept", device), "of the listener with an option")
			require.Equal(t, 1, connections.count(t, "dial", device))
		})
	}
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

func listen() *net.TCPListener {
	return must(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
}

// exchanges has the program accept from the descriptor that handOut returns. No client may wait.
func exchanges(handOut func(ln *net.TCPListener) int) {
	least := time.Hour
	for tries := 0; tries < 3 && least > 100*time.Millisecond; tries++ { // on a busy machine everything takes longer
		ln := listen()
		least = min(least, exchange(ln, handOut(ln)))
	}
	if least > 100*time.Millisecond {
		log.Fatal("a dial took ", least)
	}
}

// exchange has the program accept from fd, and echo a line to each of three clients. It returns how
// long the slowest of them dialled.
func exchange(ln net.Listener, fd int) (slowest time.Duration) {
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
		began := time.Now()
		c := must(net.Dial("tcp", ln.Addr().String()))
		slowest = max(slowest, time.Since(began))
		must(c.Write([]byte("mine")))
		if got := string(must(io.ReadAll(c))); got != "mine" {
			log.Fatal(got)
		}
		c.Close()
	}
	return slowest
}

func main() {
	exchanges(func(ln *net.TCPListener) int { return int(must(ln.File()).Fd()) })
	exchanges(func(ln *net.TCPListener) (copied int) {
		must(ln.SyscallConn()).Control(func(fd uintptr) { copied = must(syscall.Dup(int(fd))) })
		return copied
	})

	ln := listen()
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
	must(c.Write([]byte("mine")))
	c.(*net.TCPConn).CloseWrite()
	if got := string(must(io.ReadAll(c))); got != "mine" {
		log.Fatal(got)
	}
	fmt.Println("ok")
}
`
