package sdp

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStockServers dials servers that have never heard of SDP with network "tcp": that
// makes one connection, on which nothing is sent.
func TestStockServers(t *testing.T) {
	for _, v := range []struct {
		name  string
		start func(t *testing.T) (address string, use func(t *testing.T, c net.Conn))
	}{
		{"net/http", stockHTTP},
		{"TLS", stockTLS},
		{"greeter", stockGreeter},
		{"Python's http.server", stockPython},
	} {
		t.Run(v.name, func(t *testing.T) {
			address, use := v.start(t)
			counted, dials := relayCounting(t, address)
			for want := range int32(2) {
				c, err := Dial("tcp", counted)
				require.NoError(t, err)
				requireTCP(t, c)
				use(t, c)
				c.Close()
				assert.Equal(t, want+1, dials.Load(), "connections made")
			}
		})
	}
}

func stockHTTP(t *testing.T) (string, func(*testing.T, net.Conn)) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), func(t *testing.T, c net.Conn) { get(t, c, "hello") }
}

// get fetches / over c.
func get(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(soon))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), want)
}

func stockTLS(t *testing.T) (string, func(*testing.T, net.Conn)) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	t.Cleanup(s.Close)
	trusted := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.ServerName = "example.com"
	return s.Listener.Addr().String(), func(t *testing.T, c net.Conn) { get(t, tls.Client(c, trusted), "hello") }
}

// stockGreeter speaks first, as SSH's servers do.
func stockGreeter(t *testing.T) (string, func(*testing.T, net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "SSH-2.0-Greeter\r\n")
			line, _ := bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "you said "+line)
			c.Close()
		}
	}()
	return l.Addr().String(), func(t *testing.T, c net.Conn) {
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "SSH-2.0-Greeter\r\n", line)
		io.WriteString(c, "SSH-2.0-Test\n")
		line, err = r.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "you said SSH-2.0-Test\n", line)
	}
}

func stockPython(t *testing.T) (string, func(*testing.T, net.Conn)) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("missing: python3")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte("hello"), 0o644))
	cmd := exec.Command(python, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n') // Serving HTTP on 127.0.0.1 port 40000 …
	require.NoError(t, err)
	port := regexp.MustCompile(`port (\d+)`).FindStringSubmatch(line)
	require.NotNil(t, port, line)
	return net.JoinHostPort("127.0.0.1", port[1]), func(t *testing.T, c net.Conn) { get(t, c, "hello") }
}

// relayCounting counts the connections that are made to a server, and passes
// them on whole: bytes, half-closes, ends.
func relayCounting(t *testing.T, server string) (address string, dials *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dials = new(atomic.Int32)
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			s, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				c.Close()
				continue
			}
			copied := make(chan struct{})
			go func() {
				io.Copy(s, c)
				s.(*net.TCPConn).CloseWrite()
				close(copied)
			}()
			io.Copy(c, s)
			c.Close()
			s.Close()
			<-copied
		}
	}()
	return l.Addr().String(), dials
}
