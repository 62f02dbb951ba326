package stream

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tcpConn are the methods of net.TCPConn.
type tcpConn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
	SetKeepAlive(keepalive bool) error
	SetKeepAlivePeriod(d time.Duration) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	SetNoDelay(noDelay bool) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	MultipathTCP() (bool, error)
	File() (*os.File, error)
}

var _, _ tcpConn = (*Conn)(nil), (*net.TCPConn)(nil)

// calls are made on a connection in each of the situations.
var calls = []struct {
	name string
	call func(c tcpConn) (any, error)
}{
	{"Write", func(c tcpConn) (any, error) { return c.Write([]byte("x")) }},
	{"empty Write", func(c tcpConn) (any, error) { return c.Write(nil) }},
	{"ReadFrom memory", func(c tcpConn) (any, error) { return c.ReadFrom(struct{ io.Reader }{strings.NewReader("x")}) }},
	{"ReadFrom nothing", func(c tcpConn) (any, error) { return c.ReadFrom(strings.NewReader("")) }},
	{onlyTCP + "a file", func(c tcpConn) (any, error) {
		f, err := os.Open("doc.go")
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return c.ReadFrom(f)
	}},
	{"ReadFrom failing", func(c tcpConn) (any, error) { return c.ReadFrom(failing{}) }},
	{"WriteBuffers", func(c tcpConn) (any, error) { return writeBuffers(c, &net.Buffers{[]byte("x"), {}, []byte("y")}) }},
	{"no WriteBuffers", func(c tcpConn) (any, error) { return writeBuffers(c, &net.Buffers{{}}) }},
	{"Read", func(c tcpConn) (any, error) { return c.Read(make([]byte, 10)) }},
	{"empty Read", func(c tcpConn) (any, error) { return c.Read(nil) }},
	{"WriteTo", func(c tcpConn) (any, error) { return c.WriteTo(io.Discard) }},
	{"SetLinger", func(c tcpConn) (any, error) { return nil, c.SetLinger(-1) }},
	{"SetKeepAlive", func(c tcpConn) (any, error) { return nil, c.SetKeepAlive(true) }},
	{"SetKeepAlivePeriod", func(c tcpConn) (any, error) { return nil, c.SetKeepAlivePeriod(time.Minute) }},
	{"SetKeepAliveConfig", func(c tcpConn) (any, error) { return nil, c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}) }},
	{"SetNoDelay", func(c tcpConn) (any, error) { return nil, c.SetNoDelay(true) }},
	{"SetReadBuffer", func(c tcpConn) (any, error) { return nil, c.SetReadBuffer(100_000) }},
	{"SetWriteBuffer", func(c tcpConn) (any, error) { return nil, c.SetWriteBuffer(100_000) }},
	{"MultipathTCP", func(c tcpConn) (any, error) { return c.MultipathTCP() }},
	{"Control", func(c tcpConn) (any, error) {
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		return nil, raw.Control(func(uintptr) {})
	}},
	{"raw Read", func(c tcpConn) (any, error) {
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		return nil, raw.Read(func(uintptr) bool { return true }) // looks, as connection pools do
	}},
	{"raw Write", func(c tcpConn) (any, error) {
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		return nil, raw.Write(func(uintptr) bool { return true })
	}},
	{"File", func(c tcpConn) (any, error) {
		f, err := c.File()
		if err == nil {
			f.Close()
		}
		return nil, err
	}},
	{"SetReadDeadline", func(c tcpConn) (any, error) { return nil, c.SetReadDeadline(past) }},
	{"SetWriteDeadline", func(c tcpConn) (any, error) { return nil, c.SetWriteDeadline(past) }},
	{"SetDeadline", func(c tcpConn) (any, error) { return nil, c.SetDeadline(past) }},
	{"CloseRead", func(c tcpConn) (any, error) { return nil, c.CloseRead() }},
	{"CloseWrite", func(c tcpConn) (any, error) { return nil, c.CloseWrite() }},
	{"Close", func(c tcpConn) (any, error) { return nil, c.Close() }},
}

// onlyTCP begins the names of calls whose errors name another system call when the connection is not on TCP.
const onlyTCP = "ReadFrom of "

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func writeBuffers(c tcpConn, v *net.Buffers) (int64, error) {
	if s, ok := c.(*Conn); ok {
		return s.WriteBuffers(v)
	}
	return v.WriteTo(c)
}

// situations are what has happened before. All Reads find something, or an end.
var situations = map[string]func(t *testing.T, c, peer tcpConn){
	"all is well":  func(t *testing.T, c, peer tcpConn) { c.SetReadDeadline(past) },
	"deadlines":    func(t *testing.T, c, peer tcpConn) { c.SetDeadline(past) },
	"bytes":        func(t *testing.T, c, peer tcpConn) { arrive(t, c, peer); require.NoError(t, peer.CloseWrite()) },
	"closed":       func(t *testing.T, c, peer tcpConn) { require.NoError(t, c.Close()) },
	"read closed":  func(t *testing.T, c, peer tcpConn) { require.NoError(t, c.CloseRead()) },
	"write closed": func(t *testing.T, c, peer tcpConn) { require.NoError(t, c.CloseWrite()); c.SetReadDeadline(past) },
	"peer has ended": func(t *testing.T, c, peer tcpConn) {
		require.NoError(t, peer.CloseWrite())
		n, err := c.Read(make([]byte, 1))
		require.Zero(t, n)
		require.Equal(t, io.EOF, err)
	},
	"peer has reset": func(t *testing.T, c, peer tcpConn) {
		require.NoError(t, peer.SetLinger(0))
		require.NoError(t, peer.Close())
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	},
}

func arrive(t *testing.T, c, peer tcpConn) {
	_, err := peer.Write([]byte("0123456789abcdef"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)
}

// TestLikeNet: every call returns what net.TCPConn's does, with the same error, in each situation and at each place.
func TestLikeNet(t *testing.T) {
	for situation, happen := range situations {
		for _, v := range calls {
			did := func(c, peer tcpConn) string {
				happen(t, c, peer)
				local, remote := c.LocalAddr().String(), c.RemoteAddr().String()
				result := ""
				for range 2 {
					n, err := v.call(c)
					text := fmt.Sprintf("%v, %v; ", n, err)
					text = strings.ReplaceAll(text, local, "local")
					result += strings.ReplaceAll(text, remote, "remote")
				}
				return result
			}
			x, y := tcpPair(t)
			want := did(x.tcp, y.tcp)
			for place, pair := range map[string]func() (a, b *Conn){
				"plain":  func() (a, b *Conn) { return tcpPair(t) },
				"linked": func() (a, b *Conn) { return linkedPair(t) },
				"moved":  func() (a, b *Conn) { a, b = linkedPair(t); move(t, a, b); return a, b },
				"home":   func() (a, b *Conn) { a, b = linkedPair(t); move(t, a, b); bringHome(t, a, b); return a, b },
			} {
				if strings.HasPrefix(v.name, onlyTCP) && (place == "linked" || place == "moved") {
					continue
				}
				a, b := pair()
				stop := make(chan bool)
				done := make(chan bool)
				go func() { // the peer's monitor
					defer close(done)
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
							b.Visit()
						}
					}
				}()
				assert.Equal(t, want, did(a, b), "%s, %s, %s", situation, v.name, place)
				close(stop)
				<-done
			}
		}
	}
}
