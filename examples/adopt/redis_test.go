package adopt

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// serveRedis answers a few commands, over TLS if the client begins with that.
func serveRedis(t *testing.T) func(*server, net.Conn) {
	return func(s *server, conn net.Conn) {
		c, isTLS := peek(conn)
		if s.Addr().Network() == "tcp" {
			s.sawSocket(t, conn)
		}
		if isTLS {
			c = tls.Server(c, s.tls)
		}
		r := bufio.NewReader(c)
		for {
			var n, size int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
				return
			}
			words := make([]string, n)
			for i := range words {
				if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
					return
				}
				word := make([]byte, size+len("\r\n"))
				if _, err := io.ReadFull(r, word); err != nil {
					return
				}
				words[i] = string(word[:size])
			}
			s.saw("TLS %v: %q", isTLS, words)
			switch strings.ToLower(words[0]) {
			case "ping":
				fmt.Fprint(c, "+PONG\r\n")
			case "auth", "select":
				fmt.Fprint(c, "+OK\r\n")
			default:
				fmt.Fprint(c, "-ERR unknown command\r\n")
			}
		}
	}
}

func TestRedis(t *testing.T) {
	script(func(t *testing.T, recipe bool) (saw []string) {
		ctx := watched(t)
		ping := func(options *redis.Options) string {
			options.Password, options.DB, options.MaxRetries, options.DialerRetries = "secret", 1, -1, 1
			if recipe {
				Redis(options)
			}
			client := redis.NewClient(options)
			defer client.Close()
			return client.Ping(ctx).String()
		}
		s := serve(t, "tcp", "127.0.0.1:0", serveRedis(t))
		_, port, err := net.SplitHostPort(s.Addr().String())
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "redis")
		u := serve(t, "unix", path, serveRedis(t))
		named := clientTLS(t)
		named.ServerName = "other.example"
		saw = append(saw,
			ping(&redis.Options{Addr: s.Addr().String()}),
			ping(&redis.Options{Addr: s.Addr().String(), TLSConfig: clientTLS(t)}),
			ping(&redis.Options{Addr: "localhost:" + port, TLSConfig: clientTLS(t)}),
			ping(&redis.Options{Addr: s.Addr().String(), TLSConfig: named}),
			ping(&redis.Options{Addr: path, Network: "unix"}),
			ping(&redis.Options{Addr: refused(t)}),
		)
		silent := serve(t, "tcp", "127.0.0.1:0", func(_ *server, conn net.Conn) { io.Copy(io.Discard, conn) })
		for _, address := range []string{silent.Addr().String(), stalled(t)} {
			client := redis.Options{Addr: address, TLSConfig: clientTLS(t), DialTimeout: 100 * time.Millisecond, MaxRetries: -1, DialerRetries: 1}
			if recipe {
				Redis(&client)
			}
			c := redis.NewClient(&client)
			saw = append(saw, outcome(c.Ping(ctx).Err()))
			c.Close()
		}
		return append(append(saw, s.all()...), u.all()...)
	}).same(t)
}

// TestRedisDefaults: options that name no time have the library's.
func TestRedisDefaults(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	require.Equal(t, client.Options().DialTimeout, redisDialTimeout)
}

func Example_redis() {
	options := &redis.Options{Addr: "localhost:6379"}
	Redis(options)
	client := redis.NewClient(options)
	defer client.Close()
	client.Ping(context.Background())
}
