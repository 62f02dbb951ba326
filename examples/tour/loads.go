package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A load is a kind of traffic between the two processes.
type load struct {
	name  string
	serve func(net.Listener) error // the server, until the listener is closed
	// turn transfers for a while over the client's connection, and returns the number of units.
	turn   func(*client) (units int, err error)
	format func(perSecond float64) string
}

var loads = []load{
	{"round trips of 64 B", serveEcho, roundTrips, func(n float64) string { return fmt.Sprintf("%.1f µs", 1e6/n) }},
	{"HTTP requests of 1 KB", serveHTTP, requests, func(n float64) string { return fmt.Sprintf("%.0f/s", n) }},
	{"transfer", serveTransfer, transfer, func(n float64) string { return fmt.Sprintf("%.0f MB/s", n/1e6) }},
}

const (
	period = 1<<20 + 7 // not a multiple of any buffer's length
	buffer = 1 << 20
)

// stream is what every transfer carries. Byte i is stream[i%period].
var stream = func() []byte {
	b := make([]byte, period+buffer)
	for i := range b {
		b[i] = byte(uint64(i%period) * 0x9e3779b97f4a7c15 >> 56)
	}
	return b
}()

// at returns n bytes of the stream from position i.
func at(i, n int) []byte { return stream[i%period:][:n] }

var errDiffers = errors.New("received data differs from sent data")

// roundTrips sends messages of 64 bytes, each after the echo of the one before.
func roundTrips(c *client) (n int, err error) {
	got := make([]byte, 64)
	for start := time.Now(); time.Since(start) < c.turn; n++ {
		c.conn.Write(at(n, len(got))) // if it fails, so does the Read
		if _, err := io.ReadFull(c.conn, got); err != nil || !bytes.Equal(got, at(n, len(got))) {
			return n, cmp.Or(err, errDiffers)
		}
	}
	return n, nil
}

func serveEcho(ln net.Listener) error {
	conn, err := ln.Accept()
	if err == nil {
		io.Copy(conn, conn) // the client reports what fails
	}
	return err
}

// requests gets one response after the other.
func requests(c *client) (n int, err error) {
	for start := time.Now(); time.Since(start) < c.turn; n++ {
		response, err := c.http.Get("http://server/" + strconv.Itoa(n))
		if err != nil {
			return n, err
		}
		if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, at(n, 1<<10)) {
			return n, cmp.Or(err, errDiffers)
		}
		response.Body.Close()
	}
	return n, nil
}

func serveHTTP(ln net.Listener) error {
	return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, "/"), 10, 31)
		w.Write(at(int(n), 1<<10))
	}))
}

// transfer sends the stream's first bytes, and waits until the server has compared them.
func transfer(c *client) (int, error) {
	binary.Write(c.conn, binary.BigEndian, uint64(c.bytes)) // if a Write fails, so does the Read
	for i := 0; i < c.bytes; i += buffer {
		c.conn.Write(at(i, min(buffer, c.bytes-i)))
	}
	var equal bool
	err := binary.Read(c.conn, binary.BigEndian, &equal)
	if err == nil && !equal {
		err = errDiffers
	}
	return c.bytes, err
}

func serveTransfer(ln net.Listener) error {
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	for got := make([]byte, buffer); ; {
		var length uint64
		if binary.Read(conn, binary.BigEndian, &length) != nil {
			return nil // the client is done, or reports what failed
		}
		equal := true
		for i := 0; i < int(length); {
			n, err := conn.Read(got[:min(buffer, int(length)-i)])
			if err != nil {
				return err
			}
			equal = equal && bytes.Equal(got[:n], at(i, n))
			i += n
		}
		binary.Write(conn, binary.BigEndian, equal)
	}
}
