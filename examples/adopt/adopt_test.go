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

// TestMain fixes the device, which is otherwise the best that this machine has.
func TestMain(m *testing.M) {
	os.Setenv("SDP_DEVICES", "iwarp")
	os.Exit(m.Run())
}

// check ends an example that did not work out.
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

// connKey is the key of a request's connection in its context.
type connKey struct{}

// tellDevice is an http.Server that says what its requests came over.
func tellDevice() *http.Server {
	return &http.Server{
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "asked over %s", devices.Of(r.Context().Value(connKey{}).(net.Conn)))
		}),
	}
}

// get prints what a web server says.
func get(client *http.Client, address net.Addr) {
	response, err := client.Get("http://" + address.String())
	check(err)
	defer response.Body.Close()
	var text [100]byte
	n, _ := response.Body.Read(text[:])
	fmt.Println(string(text[:n]))
}

// A silent is a server that notes what the first connection came over, and hangs
// up on each: enough to see that a client's dialer is used.
type silent struct {
	net.Listener
	device chan string
}

func newSilent() silent {
	patient := sdp.ListenConfig{Config: &sdp.Config{HandshakeTimeout: time.Minute}} // on a busy machine
	listener, err := patient.Listen(context.Background(), "tcp", "localhost:0")
	check(err)
	s := silent{listener, make(chan string, 1)}
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
