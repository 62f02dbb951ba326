package adopt

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// serveNATS answers pings.
func serveNATS(t *testing.T, secure bool) func(*server, net.Conn) {
	return func(s *server, conn net.Conn) {
		fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.12.0\",\"max_payload\":1024,\"tls_required\":%v}\r\n", secure)
		c, isTLS := peek(conn)
		s.sawSocket(t, conn)
		if isTLS {
			c = tls.Server(c, s.tls)
		}
		lines := bufio.NewScanner(c)
		for lines.Scan() {
			line := lines.Text()
			if text, ok := strings.CutPrefix(line, "CONNECT "); ok {
				var connect struct {
					User, Pass, Name string
					TLS              bool `json:"tls_required"`
				}
				line = fmt.Sprintf("%v %+v", json.Unmarshal([]byte(text), &connect), connect)
			}
			s.saw("TLS %v: %s", isTLS, line)
			if line == "PING" {
				fmt.Fprint(c, "PONG\r\n")
			}
		}
	}
}

func TestNATS(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		connect := func(address string, options ...nats.Option) string {
			options = append(options, nats.UserInfo("user", "secret"))
			if recipe {
				options = append(options, NATS())
			}
			conn, err := nats.Connect("nats://"+address, options...)
			if err != nil {
				return outcome(err)
			}
			defer conn.Close()
			return fmt.Sprint(conn.Opts.Timeout, outcome(conn.FlushTimeout(time.Minute)))
		}
		plain := serve(t, "tcp", "127.0.0.1:0", serveNATS(t, false))
		secure := serve(t, "tcp", "127.0.0.1:0", serveNATS(t, true))
		saw = append(saw,
			connect(plain.Addr().String()),
			connect(secure.Addr().String(), nats.Secure(clientTLS(t))),
			connect(refused(t)),
		)
		silent := serve(t, "tcp", "127.0.0.1:0", func(_ *server, conn net.Conn) { io.Copy(io.Discard, conn) })
		for _, address := range []string{silent.Addr().String(), stalled(t)} {
			saw = append(saw, connect(address, nats.Timeout(100*time.Millisecond)))
		}
		return append(append(saw, plain.all()...), secure.all()...)
	}).same(t)
}

func Example_nats() {
	conn, err := nats.Connect("nats://localhost:4222", nats.Timeout(5*time.Second), NATS())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
}
