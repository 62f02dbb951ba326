package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// TestResetsPass has either end reset an idle connection. The other end sees that at once.
func TestResetsPass(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	p, _ := running(t, 0)
	q, _ := running(t, 0)
	require.NoError(t, q.Apply("", []Route{route(t, "sdp://127.0.0.1:0", "tcp://"+server.Addr().String())}))
	require.NoError(t, p.Apply("", []Route{route(t, "tcp://127.0.0.1:0", "sdp://"+at(q))}))
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		for _, address := range []string{server.Addr().String(), at(q), at(p)} {
			for _, byClient := range []bool{true, false} {
				network := "tcp"
				if address == at(q) {
					network = "sdp"
				}
				c, err := sdp.DialTimeout(network, address, patience)
				require.NoError(t, err)
				defer c.Close()
				s, err := server.Accept()
				require.NoError(t, err)
				defer s.Close()
				resets, sees := c.(conn), s.(conn)
				if !byClient {
					resets, sees = sees, resets
				}
				_, err = resets.Write([]byte("word"))
				require.NoError(t, err)
				hears(t, sees, "word")
				reset(resets)
				_, err = sees.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET, "%s, by the client: %v", address, byClient)
			}
		}
	}
}

// A scripted connection does what its functions say, and notes how it is ended.
type scripted struct {
	conn
	read, write func(b []byte) (int, error)
	gone        bool // as a connection that was reset
	closed      chan struct{}

	mu     sync.Mutex
	ended  bool   // by CloseWrite
	onEnd  func() // nil: none
	linger int
}

func newScripted(read, write func(b []byte) (int, error)) *scripted {
	return &scripted{read: read, write: write, linger: -1, closed: make(chan struct{})}
}

func (c *scripted) Read(b []byte) (int, error)          { return c.call(c.read, b) }
func (c *scripted) Write(b []byte) (int, error)         { return c.call(c.write, b) }
func (c *scripted) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{c}, r) }
func (c *scripted) WriteTo(w io.Writer) (int64, error)  { return io.Copy(w, struct{ io.Reader }{c}) }

// call calls f. As on a real connection, it fails after Close.
func (c *scripted) call(f func(b []byte) (int, error), b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
		return f(b)
	}
}

func (c *scripted) CloseRead() error {
	if c.gone {
		return syscall.ENOTCONN
	}
	return nil
}

func (c *scripted) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.onEnd != nil {
		c.onEnd()
	}
	return nil
}

func (c *scripted) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = sec
	return nil
}

func (c *scripted) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

// relays copies between two connections until both directions have ended, and returns how long that takes.
func relays(client, server conn) time.Duration {
	start := time.Now()
	r := newRelay(nil, client)
	var upward sync.WaitGroup
	upward.Go(func() { pass(server, client, &r.up, &r.down) })
	pass(client, server, &r.down, &r.up)
	upward.Wait()
	return time.Since(start)
}

func sends(b []byte) (int, error) { return len(b), nil }
func refuses([]byte) (int, error) { return 0, syscall.ECONNRESET }

// TestAnswerIsReadAfterFailedWrite has the answer arrive when the Write towards the server has failed.
func TestAnswerIsReadAfterFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := bytes.NewReader([]byte("answer"))
		server := newScripted(func(b []byte) (int, error) {
			time.Sleep(time.Second)
			return answer.Read(b) // a Write has taken the error: the end looks like that of a file
		}, refuses)
		var got bytes.Buffer
		client := newScripted(sends, got.Write)
		require.Equal(t, 2*time.Second, relays(client, server), "it waits when everything is read")
		require.Equal(t, "answer", got.String())
		require.False(t, client.ended, "the client sees an end of file instead of a reset")
		require.Zero(t, client.linger)
		<-client.closed
		<-server.closed
	})
}

// TestEndPrecedesFailedWrite has a Write meet a reset, and a Read of the same connection see the end
// that follows it before the Write has returned.
func TestEndPrecedesFailedWrite(t *testing.T) {
	ends := func([]byte) (int, error) { return 0, io.EOF }
	for name, c := range map[string]struct {
		gone  bool
		fails bool // the Write
		waits time.Duration
	}{
		"a reset":                   {gone: true, fails: true},
		"the peer's half is closed": {},
		"a reset that no Write met": {gone: true, waits: failTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var ended time.Duration
				server := newScripted(ends, func(b []byte) (int, error) {
					if len(b) > 0 {
						time.Sleep(failTime / 2)
					}
					if c.fails {
						return 0, syscall.ECONNRESET
					}
					return len(b), nil
				})
				server.gone = c.gone
				asked := false
				client := newScripted(func(b []byte) (int, error) {
					if asked {
						time.Sleep(time.Hour) // nothing more comes
						return 0, io.EOF
					}
					asked = true
					return len(b), nil
				}, sends)
				client.onEnd = func() { ended = time.Since(start) }
				relays(client, server)
				require.Equal(t, !c.fails, client.ended)
				require.Equal(t, c.waits, ended)
				if c.fails {
					require.Zero(t, client.linger, "the client sees no reset")
				}
			})
		})
	}
}

// TestAnswerIsNotAwaitedForEver has a client that does not read what the server had sent.
func TestAnswerIsNotAwaitedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var client *scripted
		client = newScripted(sends, func(b []byte) (int, error) {
			<-client.closed
			return 0, net.ErrClosed
		})
		require.Equal(t, answerTime, relays(client, newScripted(sends, refuses)))
	})
}

// TestResetOfTheClientPasses has nothing to wait for: the client is gone.
func TestResetOfTheClientPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server *scripted
		server = newScripted(func([]byte) (int, error) {
			<-server.closed
			return 0, net.ErrClosed
		}, sends)
		require.Zero(t, relays(newScripted(refuses, refuses), server))
		require.Zero(t, server.linger)
	})
}
