package adopt_test

import (
	"fmt"
	"net/http"

	"github.com/gorilla/websocket"
	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/sdp"
)

func Example_httpServer() {
	listener, err := sdp.Listen("tcp", "localhost:0") // adopts SDP; was net.Listen
	check(err)
	server := deviceServer()
	go server.Serve(listener)
	defer server.Close()

	client := &http.Client{Transport: &http.Transport{DialContext: new(sdp.Dialer).DialContext}}
	get(client, listener.Addr())

	// The same port also serves clients without SDP.
	get(http.DefaultClient, listener.Addr())
	// Output:
	// asked over iwarp
	// asked over tcp
}

func Example_httpTransport() {
	listener, err := sdp.Listen("tcp", "localhost:0")
	check(err)
	server := deviceServer()
	go server.Serve(listener)
	defer server.Close()

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = new(sdp.Dialer).DialContext // adopts SDP
	client := &http.Client{Transport: transport}
	get(client, listener.Addr())
	// Output: asked over iwarp
}

func Example_websocket() {
	listener, err := sdp.Listen("tcp", "localhost:0")
	check(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		check(err)
		defer conn.Close()
		check(conn.WriteMessage(websocket.TextMessage, []byte("greeted over "+devices.Of(conn.NetConn()))))
	})}
	go server.Serve(listener)
	defer server.Close()

	dialer := websocket.Dialer{NetDialContext: new(sdp.Dialer).DialContext} // adopts SDP
	conn, _, err := dialer.Dial("ws://"+listener.Addr().String(), nil)
	check(err)
	defer conn.Close()
	_, message, err := conn.ReadMessage()
	check(err)
	fmt.Println(string(message))
	// Output: greeted over iwarp
}
