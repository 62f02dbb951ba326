// Echo is a minimal program over SDP. A server echoes what it receives. A client sends
// data, closes its sending direction, and compares what it receives.
//
//	go run ./examples/echo
//
// starts both in separate processes. On two machines, run
//
//	go run ./examples/echo -listen :7007
//	go run ./examples/echo -dial server:7007
package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/examples/internal/process"
	"github.com/gosdp/gosdp/sdp"
)

// dialer has the defaults of SDP, as sdp.Dial does.
var dialer sdp.Dialer

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("echo", flag.ExitOnError)
	listen := flags.String("listen", "", "run only the server, at this `address`")
	dial := flags.String("dial", "", "run only the client, for the server at this `address`")
	size := flags.Int("bytes", 1<<20, "number of bytes that the client sends")
	child := flags.Bool("child", false, "end the server with standard input (used internally)")
	flags.Parse(args)
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	case *listen != "" && *dial != "":
		return errors.New("-listen and -dial exclude each other")
	case *size < 0:
		return errors.New("-bytes must not be negative")
	case *listen != "":
		return serve(*listen, *child)
	case *dial != "":
		return call(*dial, *size, out)
	}
	return both(*size, out)
}

// both starts a server process and calls it.
func both(size int, out io.Writer) error {
	address, stop, err := process.Start(nil, "-listen", "localhost:0", "-child")
	if err != nil {
		return err
	}
	return errors.Join(call(address, size, out), stop())
}

// serve echoes what it receives on every connection. As a child it ends when its standard
// input ends.
func serve(address string, child bool) error {
	listener, err := sdp.Listen("tcp", address)
	if err != nil {
		return err
	}
	if child {
		process.Announce(listener.Addr(), func() { listener.Close() })
	} else {
		fmt.Println(listener.Addr())
	}
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn)
		}()
	}
}

// call sends size bytes to the server at address and reads them back.
func call(address string, size int, out io.Writer) error {
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make([]byte, size)
	rand.Read(sent)
	go func() {
		conn.Write(sent) // if it fails, the comparison fails too
		conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("received %d bytes that differ from the %d sent", len(got), len(sent))
	}
	fmt.Fprintf(out, "%d bytes there and back over %s\n", len(got), devices.Of(conn))
	return nil
}
