package adopt_test

import (
	"crypto/tls"
	"fmt"
	"io"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/sdp"
)

func Example_tlsServer() {
	config, err := server.Config()
	check(err)

	below, err := sdp.Listen("tcp", "localhost:0") // adopts SDP
	check(err)
	listener := tls.NewListener(below, config) // was tls.Listen
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		check(err)
		fmt.Fprintf(conn, "encrypted over %s", devices.Of(conn))
		check(conn.Close())
	}()

	// The same port also serves clients without SDP.
	config, err = client.Config()
	check(err)
	conn, err := tls.Dial("tcp", listener.Addr().String(), config)
	check(err)
	defer conn.Close()
	text, err := io.ReadAll(conn)
	check(err)
	fmt.Println(string(text))
	// Output: encrypted over tcp
}

func Example_tlsClient() {
	config, err := server.Config()
	check(err)
	below, err := sdp.Listen("tcp", "localhost:0")
	check(err)
	listener := tls.NewListener(below, config)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		check(err)
		fmt.Fprintf(conn, "encrypted over %s", devices.Of(conn))
		check(conn.Close())
	}()

	config, err = client.Config()
	check(err)
	config.ServerName = "localhost"

	socket, err := sdp.Dial("tcp", listener.Addr().String()) // adopts SDP
	check(err)
	conn := tls.Client(socket, config) // was tls.Dial
	defer conn.Close()
	text, err := io.ReadAll(conn)
	check(err)
	fmt.Println(string(text))
	// Output: encrypted over iwarp
}
