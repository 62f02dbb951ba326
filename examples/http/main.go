// Http is an unmodified net/http server and client that talk to each other over
// RDMA. It serves a directory tree over SDP, fetches every file of it from
// another process, compares every byte with the disk, and then does the same
// over TCP:
//
//	go run ./examples/http [-dir DIR] [-conns N] [-host ADDRESS]
//
// Without -dir the tree is the Go installation's own source. The exit status is
// 1 if a file came over wrong, or if what carried it was not an RDMA device.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	_ "github.com/gosdp/gosdp/rdma/verbs" // RDMA hardware, where there is any
	"github.com/gosdp/gosdp/sdp"
)

// A stack is where a program's connections come from.
type stack struct {
	listen func(network, address string) (net.Listener, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// These two lines are all that a program changes to adopt SDP. Everything else
// in this example is the same for both.
var (
	overSDP = stack{listen: sdp.Listen, dial: new(sdp.Dialer).DialContext}
	overTCP = stack{listen: net.Listen, dial: new(net.Dialer).DialContext}
)

var stacks = map[string]stack{"sdp": overSDP, "tcp": overTCP}

func main() {
	dir := flag.String("dir", "", "the tree to serve (default the Go installation's src)")
	conns := flag.Int("conns", 8, "how many connections fetch it")
	host := flag.String("host", "localhost", "the `address` to serve at; one of an RDMA device's has SDP use that")
	role := flag.String("serve", "", "be the server process over this `stack`; for the program's own use")
	flag.Parse()

	var err error
	if *role != "" {
		err = serve(stacks[*role], *host, *dir)
	} else {
		err = compare(*host, *dir, *conns, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}
