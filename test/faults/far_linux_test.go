package faults

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/sdp"
)

// plainNetwork selects package net in the roles below.
const plainNetwork = "net"

// runFarServer listens with the configuration of the environment. For each connection it
// prints the type and the first bytes. It echoes everything.
func runFarServer(network, address string) {
	listen := listenUnhurried
	if network == plainNetwork {
		network, listen = "tcp", net.Listen
	}
	ln, err := listen(network, address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1000)
			n, _ := c.Read(b)
			fmt.Printf("%s %q\n", carrier(c), b[:n])
			c.Write(b[:n])
			io.Copy(c, struct{ io.Reader }{c})
		}()
	}
}

// runFarClient dials, and prints the type of the connection and the echo.
func runFarClient(network, address string, dials int) {
	fmt.Println("dialling")
	dial := unhurried().Dial
	if network == plainNetwork {
		network, dial = "tcp", net.Dial
	}
	for range dials {
		c, err := dial(network, address)
		if err != nil {
			fmt.Println(err)
			continue
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		b := []byte("hello")
		c.Write(b)
		n, err := io.ReadFull(c, b)
		fmt.Printf("%s %q %v\n", carrier(c), b[:n], err)
		c.Close()
	}
}

// carrier returns what carries a connection, or has carried it: a device or a type.
func carrier(c net.Conn) string {
	if sc, ok := c.(*sdp.Conn); ok {
		if s := sc.Stats(); s.Moves > 0 || s.ShmReceived > 0 {
			return "shm"
		}
		return sc.Device()
	}
	return fmt.Sprintf("%T", c)
}

// TestOtherHost: between two hosts without RDMA hardware, SDP is used only if the program or
// the operator configured it. All other connections are plain TCP, without a byte of SDP.
func TestOtherHost(t *testing.T) {
	const plain = "*net.TCPConn"
	peers := "SDP_PEERS=" + wireAddresses[0] + "/30"
	for _, v := range []struct {
		name           string
		environment    []string // of both processes
		server, client string   // networks
		delay          time.Duration
		carrier        string
		probe          bool
	}{
		{name: "the defaults", server: "tcp", client: "tcp", carrier: plain},
		{name: "only shm", environment: []string{"SDP_DEVICES=shm"}, server: "tcp", client: "tcp", carrier: plain},
		{name: "iwarp, without SDP_PEERS", environment: []string{"SDP_DEVICES=iwarp"}, server: "tcp", client: "tcp", carrier: plain},
		{name: "iwarp, with SDP_PEERS", environment: []string{"SDP_DEVICES=iwarp", peers}, server: "tcp", client: "tcp", carrier: "iwarp"},
		{name: "iwarp, over a slow network", environment: []string{"SDP_DEVICES=iwarp", peers}, server: "tcp", client: "tcp", delay: 150 * time.Millisecond, carrier: "iwarp"},
		{name: "a plain server", environment: []string{"SDP_DEVICES=iwarp", peers}, server: plainNetwork, client: "tcp", carrier: plain, probe: true},
		{name: "a plain client", environment: []string{"SDP_DEVICES=iwarp", peers}, server: "tcp", client: plainNetwork, carrier: plain},
		{name: "network sdp", server: "sdp", client: "sdp", carrier: "iwarp"},
	} {
		t.Run(v.name, func(t *testing.T) {
			w := newWire(t)
			w.delay.Store(int64(v.delay))
			server := start(t, "far-serve "+v.server+" "+wireAddresses[0]+":0", v.environment, w.through(0)...)
			client := start(t, "far-dial "+v.client+" "+server.first+" 2", v.environment, w.through(1)...)
			for i := range 2 {
				assert.Equal(t, v.carrier+` "hello" <nil>`, client.line(t))
				if v.probe && i == 0 {
					assert.Contains(t, server.line(t), "MPA ID Req Frame")
				}
				assert.Equal(t, v.carrier+` "hello"`, server.line(t), "nothing but the data")
			}
		})
	}
}
