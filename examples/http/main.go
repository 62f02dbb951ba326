// Http runs an unmodified net/http server and client over RDMA. It serves a directory
// tree over SDP, fetches every file from another process, compares every byte with the
// disk, and then does the same over TCP:
//
//	go run ./examples/http [-dir DIR] [-conns N] [-host ADDRESS]
//
// The default tree is the source of the Go installation. The exit status is 1 if a
// file differs, or if the connections did not use an RDMA device.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	_ "github.com/gosdp/gosdp/rdma/verbs" // enables RDMA hardware
	"github.com/gosdp/gosdp/sdp"
)

// A stack provides a program's connections.
type stack struct {
	listen func(network, address string) (net.Listener, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// To adopt SDP, a program changes only these two lines. The rest of this example is
// the same for both stacks.
var (
	overSDP = stack{listen: sdp.Listen, dial: new(sdp.Dialer).DialContext}
	overTCP = stack{listen: net.Listen, dial: new(net.Dialer).DialContext}
)

var stacks = map[string]stack{"sdp": overSDP, "tcp": overTCP}

func main() {
	dir := flag.String("dir", "", "the tree to serve (default the Go installation's src)")
	conns := flag.Int("conns", 8, "number of connections")
	host := flag.String("host", "localhost", "the `address` to serve at; with the address of an RDMA device, SDP uses that device")
	role := flag.String("serve", "", "run as the server process over this `stack` (used internally)")
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
