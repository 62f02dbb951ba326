package adopt_test

import (
	"fmt"
	"net/rpc"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/sdp"
)

// Length is a net/rpc service.
type Length struct{}

// Of sets length to the length of text.
func (Length) Of(text string, length *int) error {
	*length = len(text)
	return nil
}

// Programs that take a net.Listener or a net.Conn can use SDP. This one uses net/rpc.
func Example_anything() {
	server := rpc.NewServer()
	check(server.Register(Length{}))
	listener, err := sdp.Listen("tcp", "localhost:0") // adopts SDP; was net.Listen
	check(err)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		check(err)
		server.ServeConn(conn)
	}()

	conn, err := sdp.Dial("tcp", listener.Addr().String()) // adopts SDP; was net.Dial
	check(err)
	client := rpc.NewClient(conn)
	defer client.Close()

	var length int
	check(client.Call("Length.Of", "Sockets Direct Protocol", &length))
	fmt.Println(length, "over", devices.Of(conn))
	// Output: 23 over iwarp
}
