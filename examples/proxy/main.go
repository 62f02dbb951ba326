// Proxy is a relay between TCP and SDP: the sidecar that gives RDMA to programs
// which cannot import a Go package. One stands beside the server and one beside
// its clients, and neither program notices:
//
//	proxy -listen sdp://:7000 -dial tcp://127.0.0.1:5432           # beside PostgreSQL
//	proxy -listen tcp://127.0.0.1:5432 -dial sdp://db.example:7000 # beside psql
//
// What one side does to its connection the other side sees: data, the end of one
// direction, and resets. A connection whose target cannot be reached is reset.
//
// SIGINT and SIGTERM end the program: it stops listening, lets the connections
// that it has end by themselves for the time of -grace, and resets the rest. A
// second signal ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "github.com/gosdp/gosdp/rdma/verbs" // RDMA hardware, where there is any
	"github.com/gosdp/gosdp/sdp"
)

func main() {
	var from, to endpoint
	flag.Var(&from, "listen", "accept connections at this `endpoint`, tcp://host:port or sdp://host:port")
	flag.Var(&to, "dial", "relay each to this `endpoint`, tcp://host:port or sdp://host:port")
	grace := flag.Duration("grace", 10*time.Second, "how long connections may go on after a signal")
	flag.Parse()
	if from.network == "" || to.network == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	log.SetFlags(0)
	log.SetPrefix("proxy: ")
	listener, err := from.listen()
	if err != nil {
		log.Fatal(err)
	}
	signalled, unhook := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cut, cancel := context.WithCancel(context.Background())
	context.AfterFunc(signalled, func() {
		unhook()
		listener.Close()
		time.AfterFunc(*grace, cancel)
	})
	fmt.Printf("relaying from %s://%s to %s\n", from.network, listener.Addr(), &to)
	serve(cut, listener, to.dial)
}

// An endpoint is an address, and which protocol is spoken there. It is a
// flag.Value.
type endpoint struct{ network, address string }

func (e *endpoint) String() string { return e.network + "://" + e.address }

func (e *endpoint) Set(s string) error {
	network, address, _ := strings.Cut(s, "://")
	if network != "tcp" && network != "sdp" {
		return errors.New("want tcp://host:port or sdp://host:port")
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return err
	}
	e.network, e.address = network, address
	return nil
}

func (e *endpoint) listen() (net.Listener, error) {
	if e.network == "sdp" {
		return sdp.Listen(e.network, e.address)
	}
	return net.Listen(e.network, e.address)
}

func (e *endpoint) dial(ctx context.Context) (net.Conn, error) {
	if e.network == "sdp" {
		return new(sdp.Dialer).DialContext(ctx, e.network, e.address)
	}
	return new(net.Dialer).DialContext(ctx, e.network, e.address)
}
