package adopt_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/gosdp/gosdp/examples/internal/certs"
	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/sdp"
)

// TestMain selects the device. By default SDP would use the best one available.
func TestMain(m *testing.M) {
	os.Setenv("SDP_DEVICES", "iwarp")
	os.Setenv("SDP_PEERS", "127.0.0.0/8,::1/128")
	os.Exit(m.Run())
}

// check panics if an example fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

var server, client = func() (certs.Identity, certs.Identity) {
	server, client, err := certs.New("client")
	check(err)
	return server, client
}()

// connKey is the context key of a request's connection.
type connKey struct{}

// deviceServer returns an HTTP server that replies with the device that carried the request.
func deviceServer() *http.Server {
	return &http.Server{
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "asked over %s", devices.Of(r.Context().Value(connKey{}).(net.Conn)))
		}),
	}
}

// get prints the response of an HTTP server.
func get(client *http.Client, address net.Addr) {
	response, err := client.Get("http://" + address.String())
	check(err)
	defer response.Body.Close()
	var text [100]byte
	n, _ := response.Body.Read(text[:])
	fmt.Println(string(text[:n]))
}

// A stub is a server that records the device of its first connection and closes every
// connection at once. This is enough to show that a client uses its dialer.
type stub struct {
	net.Listener
	device chan string
}

func newStub() stub {
	patient := sdp.ListenConfig{Config: &sdp.Config{HandshakeTimeout: time.Minute}} // on a busy machine
	listener, err := patient.Listen(context.Background(), "tcp", "localhost:0")
	check(err)
	s := stub{listener, make(chan string, 1)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			select {
			case s.device <- devices.Of(conn):
			default:
			}
			conn.Close()
		}
	}()
	return s
}
