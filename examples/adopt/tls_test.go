package adopt

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

func TestTLS(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		ctx := watched(t)
		dial := func(d *net.Dialer, address string, config *tls.Config) string {
			var conn net.Conn
			var err error
			if recipe {
				conn, err = DialTLS(ctx, &sdp.Dialer{NetDialer: d}, "tcp", address, config)
			} else {
				conn, err = (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", address)
			}
			if err != nil {
				return outcome(err)
			}
			defer conn.Close()
			text, err := io.ReadAll(conn)
			return fmt.Sprintf("%s as %q %s", text, conn.(*tls.Conn).ConnectionState().ServerName, outcome(err))
		}
		s := serve(t, "tcp", "127.0.0.1:0", func(s *server, conn net.Conn) {
			c := tls.Server(conn, s.tls)
			if c.Handshake() == nil {
				s.sawSocket(t, conn)
				fmt.Fprintf(c, "hello %v", c.ConnectionState().PeerCertificates[0].Subject)
				c.Close()
			}
		})
		address := s.Addr().String()
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		config := clientTLS(t)
		config.NextProtos = []string{"h2"}
		for _, address := range []string{address, "localhost:" + port} {
			saw = append(saw, dial(nil, address, config))
		}
		named := config.Clone()
		named.ServerName = "other.example"
		saw = append(saw, dial(nil, address, named), dial(nil, address, nil))
		saw = append(saw, dial(nil, refused(t), config))

		silent := serve(t, "tcp", "127.0.0.1:0", func(_ *server, conn net.Conn) { io.Copy(io.Discard, conn) })
		for _, address := range []string{silent.Addr().String(), stalled(t)} {
			saw = append(saw, dial(&net.Dialer{Timeout: 100 * time.Millisecond}, address, config))
			saw = append(saw, dial(&net.Dialer{Deadline: time.Now().Add(100 * time.Millisecond)}, address, config))
		}
		return append(saw, s.all()...)
	}).same(t)
}

func Example_tlsServer() {
	identity, other := identities()
	config, err := identity.Config()
	if err != nil {
		log.Fatal(err)
	}
	below, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	listener := tls.NewListener(below, config) // was tls.Listen
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(conn, "TLS over a %T", conn.(*tls.Conn).NetConn())
		conn.Close()
	}()

	if config, err = other.Config(); err != nil {
		log.Fatal(err)
	}
	conn, err := DialTLS(context.Background(), new(sdp.Dialer), "tcp", listener.Addr().String(), config) // was tls.Dial
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	fmt.Println(string(text), err)
	// Output: TLS over a *sdp.Conn <nil>
}
