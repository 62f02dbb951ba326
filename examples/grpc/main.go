// Grpc runs an unmodified grpc-go service and client over RDMA, in separate processes.
// It makes every kind of call, sends messages of 16 MB, and tests cancellation and
// deadlines, first in plaintext and then over TLS.
//
//	go run ./examples/grpc
//
// The code that adopts SDP is one line in serve and one in connect.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/gosdp/gosdp/examples/grpc/relay"
	"github.com/gosdp/gosdp/examples/internal/certs"
	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/examples/internal/process"
	"github.com/gosdp/gosdp/sdp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative relay/relay.proto

// maxMessage is more than gRPC's own limit of 4 MB.
const maxMessage = 32 << 20

// sdpDialer has the defaults of SDP.
var sdpDialer sdp.Dialer

func main() {
	server := flag.Bool("serve", false, "run as the server process (used internally)")
	flag.Parse()

	var err error
	if *server {
		err = serve()
	} else {
		err = errors.Join(both("plaintext", os.Stdout), both("TLS", os.Stdout))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

// identities is the server's input: an identity for TLS, nil for plaintext.
type identities struct{ Server *certs.Identity }

// both starts a server, with plaintext or TLS, and makes every call.
func both(security string, out io.Writer) error {
	var ids identities
	clientSide := insecure.NewCredentials()
	if security == "TLS" {
		server, client, err := certs.New("client")
		if err != nil {
			return err
		}
		ids.Server = &server
		if clientSide, err = transportCredentials(client); err != nil {
			return err
		}
	}
	address, stop, err := process.Start(ids, "-serve")
	if err != nil {
		return err
	}
	dialer := devices.Recorder{Dial: sdpDialer.DialContext}
	conn, err := connect(address, clientSide, &dialer)
	if err != nil {
		return errors.Join(err, stop())
	}
	err = callAll(relay.NewRelayClient(conn), security, out)
	used, n := dialer.Used()
	fmt.Fprintf(out, "%s: all of it on %d connection over %s\n", security, n, strings.Join(used, ","))
	return errors.Join(err, conn.Close(), stop())
}

// serve runs the server process.
func serve() error {
	var ids identities
	if err := process.Input(&ids); err != nil {
		return err
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage)}
	if ids.Server != nil {
		c, err := transportCredentials(*ids.Server)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(c))
	}
	server := grpc.NewServer(options...)
	relay.RegisterRelayServer(server, newService())

	listener, err := sdp.Listen("tcp", "localhost:0") // the changed line; was net.Listen
	if err != nil {
		return err
	}
	process.Announce(listener.Addr(), server.Stop)
	return server.Serve(listener)
}

// connect returns a client of the server at address, which connects with dialer.
func connect(address string, c credentials.TransportCredentials, dialer *devices.Recorder) (*grpc.ClientConn, error) {
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(c),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { // the added option; package adopt has one that also dials Unix sockets
			return dialer.DialContext(ctx, "tcp", address)
		}))
}

func transportCredentials(id certs.Identity) (credentials.TransportCredentials, error) {
	config, err := id.Config()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

// callAll makes the calls one after another and reports each.
func callAll(client relay.RelayClient, security string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range calls {
		start := time.Now()
		what, err := c.make(ctx, client)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", security, c.name, err)
		}
		fmt.Fprintf(out, "%s: %s: %s, %v\n", security, c.name, what, time.Since(start).Round(time.Microsecond))
	}
	return nil
}
