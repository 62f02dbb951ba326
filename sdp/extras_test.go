package sdp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bare is a connection that has nothing but the interface, as a limiter's has.
type bare struct{ net.Conn }

// bareListener wraps what it accepts.
type bareListener struct{ net.Listener }

func (l bareListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return bare{c}, nil
}

// TestServerOfAPlainClientOnAWrappedConnection returns what it has read of the client's first bytes.
func TestServerOfAPlainClientOnAWrappedConnection(t *testing.T) {
	const sent = "MPA ID is not what this is"
	client, b := rawPair(t)
	_, err := io.WriteString(client, sent)
	require.NoError(t, err)
	server, err := Server(context.Background(), bare{b}, patient)
	require.NoError(t, err)
	got := make([]byte, len(sent))
	_, err = io.ReadFull(server, got)
	require.NoError(t, err)
	assert.Equal(t, sent, string(got))
	sameBytes(t, client, server, random(1<<20))
	sameBytes(t, server, client, random(1<<20))
	assert.NoError(t, client.Close())
	_, err = server.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	assert.NoError(t, server.Close())
}

// TestServerOverTLS has a client that begins TLS's handshake when Server waits for it.
func TestServerOverTLS(t *testing.T) {
	certificate, roots := certified(t)
	a, b := rawPair(t)
	served := make(chan net.Conn)
	go func() {
		c, err := Server(context.Background(), tls.Server(b, &tls.Config{Certificates: []tls.Certificate{certificate}}), patient)
		assert.NoError(t, err)
		served <- c
	}()
	client, err := Client(context.Background(), tls.Client(a, &tls.Config{RootCAs: roots, ServerName: "example.com"}), overEngine(nil))
	require.NoError(t, err)
	server := <-served
	require.IsType(t, (*Conn)(nil), server)
	sameBytes(t, client, server, random(1<<20))
	sameBytes(t, server, client, random(1<<20))
	assert.NoError(t, client.Close())
	assert.NoError(t, server.Close())
}

// certified returns a certificate for example.com, and who has signed it.
func certified(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	stock := httptest.NewTLSServer(nil)
	defer stock.Close()
	roots := x509.NewCertPool()
	roots.AddCert(stock.Certificate())
	return stock.TLS.Certificates[0], roots
}

func TestClientAndServerOnConnectionsOfTheProgram(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		a, b := rawPair(t)
		if wrapped {
			a, b = bare{a}, bare{b}
		}
		served := make(chan net.Conn)
		go func() {
			c, err := Server(context.Background(), b, patient)
			assert.NoError(t, err)
			served <- c
		}()
		client, err := Client(context.Background(), a, nil)
		require.NoError(t, err)
		server := <-served
		assert.IsType(t, (*Conn)(nil), server)
		sameBytes(t, client, server, random(300<<10))
		sameBytes(t, server, client, random(300<<10))
		assert.NoError(t, client.Close())
		assert.NoError(t, server.Close())
	}
}

// resettable is a connection that is no socket and can be reset.
type resettable struct{ bare }

func (l resettable) SetLinger(sec int) error { return l.Conn.(*net.TCPConn).SetLinger(sec) }

// TestResetOfAConnectionOfTheProgram: a reset is reported as over TCP: once, and in the same words.
func TestResetOfAConnectionOfTheProgram(t *testing.T) {
	ends := func(c, peer net.Conn) (errs []string) {
		require.NoError(t, peer.(interface{ SetLinger(int) error }).SetLinger(0))
		require.NoError(t, peer.Close())
		b := make([]byte, 1)
		for _, call := range []func([]byte) (int, error){c.Read, c.Read, c.Write, c.Write} {
			_, err := call(b)
			errs = append(errs, describe(err, c.LocalAddr(), c.RemoteAddr()))
		}
		require.NoError(t, c.Close())
		return errs
	}
	a, b := rawPair(t)
	tcp := ends(a, b)

	a, b = rawPair(t)
	served := make(chan net.Conn)
	go func() {
		c, err := Server(context.Background(), resettable{bare{b}}, patient)
		assert.NoError(t, err)
		served <- c
	}()
	client, err := Client(context.Background(), resettable{bare{a}}, nil)
	require.NoError(t, err)
	assert.Equal(t, tcp, ends(client, <-served))
}

// embedding is a connection that is no socket, although it has the methods of one.
type embedding struct{ *net.TCPConn }

func (e embedding) Read(b []byte) (int, error) { return e.TCPConn.Read(b) }

// TestOptionsOfAConnectionOfTheProgram are those of its type, also at the end that has read the first
// bytes to find out what the client speaks.
func TestOptionsOfAConnectionOfTheProgram(t *testing.T) {
	a, b := rawPair(t)
	served := make(chan net.Conn)
	go func() {
		c, err := Server(context.Background(), embedding{b.(*net.TCPConn)}, patient)
		assert.NoError(t, err)
		served <- c
	}()
	client, err := Client(context.Background(), embedding{a.(*net.TCPConn)}, nil)
	require.NoError(t, err)
	server := <-served
	for _, c := range []*Conn{client, server.(*Conn)} {
		assert.NoError(t, c.SetNoDelay(true))
		assert.NoError(t, c.SetKeepAlive(true))
		assert.NoError(t, c.SetReadBuffer(64<<10))
	}
	sameBytes(t, client, server, random(1<<10))
	assert.NoError(t, client.Close())
	assert.NoError(t, server.Close())
}

func TestServerReturnsAPlainConnectionAsItIs(t *testing.T) {
	a, b := rawPair(t)
	_, err := a.Write([]byte("hello"))
	require.NoError(t, err)
	c, err := Server(context.Background(), b, &Config{Devices: []string{engineDevice}})
	require.NoError(t, err)
	assert.Same(t, b, c)
	sameBytes(t, c, a, []byte("and back"))
	a.Close()
	c.Close()
}

// TestServerReturnsAtOnceWithoutDevices waits for nothing, and returns what it got.
func TestServerReturnsAtOnceWithoutDevices(t *testing.T) {
	for name, v := range map[string]struct {
		devices []string
		change  func(net.Conn) net.Conn
	}{
		"off, TCP":              {[]string{"tcp"}, func(c net.Conn) net.Conn { return c }},
		"off, TLS":              {[]string{"tcp"}, func(c net.Conn) net.Conn { return tls.Server(c, nil) }},
		"shared memory, no TCP": {[]string{deviceSHM}, func(c net.Conn) net.Conn { return &bare{c} }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := rawPair(t)
			defer a.Close()
			defer b.Close()
			conn := v.change(b)
			c, err := Server(context.Background(), conn, &Config{Devices: v.devices, HandshakeTimeout: time.Hour})
			require.NoError(t, err)
			assert.Same(t, conn, c)
		})
	}
}

// TestHandshakeContext: Client and Server give up when their context is done.
func TestHandshakeContext(t *testing.T) {
	config := &Config{Devices: []string{"iwarp"}, ReplyTimeout: time.Hour, HandshakeTimeout: time.Hour}
	for name, shake := range map[string]func(ctx context.Context, conn net.Conn) error{
		"client": func(ctx context.Context, conn net.Conn) error {
			_, err := Client(ctx, conn, config)
			return err
		},
		"server": func(ctx context.Context, conn net.Conn) error {
			_, err := Server(ctx, conn, config)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := rawPair(t)
			defer b.Close()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- shake(ctx, a) }()
			if name == "client" {
				_, err := io.ReadFull(b, make([]byte, 16)) // of the Request
				require.NoError(t, err)
			} else {
				_, err := b.Write([]byte("MPA ID Req F")) // but not the rest of it
				require.NoError(t, err)
			}
			cancel()
			err := <-done
			assert.ErrorIs(t, err, context.Canceled)
			assert.IsType(t, (*net.OpError)(nil), err)
			_, err = a.Write([]byte("x"))
			assert.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

func TestClientSaysWhyNot(t *testing.T) {
	a, b := rawPair(t)
	go func() {
		io.ReadFull(b, make([]byte, 16))
		b.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
		b.Close()
	}()
	_, err := Client(context.Background(), a, overEngine(nil))
	var plain *NotSDPError
	require.ErrorAs(t, err, &plain)
	assert.Contains(t, err.Error(), `answered "HTTP/1.1 400 Bad`)
	_, err = a.Write([]byte("x"))
	assert.ErrorIs(t, err, net.ErrClosed)
}

func TestAcceptDeadline(t *testing.T) {
	l, err := Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	sl := l.(*Listener)
	require.NoError(t, sl.SetDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = l.Accept()
	var op net.Error
	require.ErrorAs(t, err, &op)
	assert.True(t, op.Timeout())
	require.NoError(t, sl.SetDeadline(time.Time{}))
	f, err := sl.File()
	require.NoError(t, err)
	defer f.Close()
	again, err := net.FileListener(f)
	require.NoError(t, err)
	assert.Equal(t, l.Addr().String(), again.Addr().String())
	again.Close()
}

func TestReadFromAndWriteToCarryAll(t *testing.T) {
	a, b := methodPair(t, "sdp", nil)
	want := random(9 << 20)
	var got bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		n, err := io.Copy(&got, struct{ io.Reader }{b})
		_ = n
		assert.NoError(t, err)
	})
	n, err := a.ReadFrom(struct{ io.Reader }{bytes.NewReader(want)})
	assert.NoError(t, err)
	assert.EqualValues(t, len(want), n)
	require.NoError(t, a.CloseWrite())
	wg.Wait()
	assert.Equal(t, sha256.Sum256(want), sha256.Sum256(got.Bytes()))

	got.Reset()
	wg.Go(func() {
		n, err := a.WriteTo(&got)
		assert.NoError(t, err)
		assert.EqualValues(t, len(want), n)
	})
	_, err = b.Write(want)
	assert.NoError(t, err)
	require.NoError(t, b.Close())
	wg.Wait()
	assert.Equal(t, sha256.Sum256(want), sha256.Sum256(got.Bytes()))
	require.NoError(t, a.Close())
}

// shortWriter takes some bytes and then fails.
type shortWriter struct{ room int }

func (w *shortWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.room)
	if w.room -= n; n < len(b) {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

func TestWriteToLosesNothingWhenTheSinkFails(t *testing.T) {
	a, b := methodPair(t, "sdp", nil)
	defer a.Close()
	want := random(100 << 10)
	_, err := b.Write(want)
	require.NoError(t, err)
	require.NoError(t, b.CloseWrite())
	n, err := a.WriteTo(&shortWriter{room: 12345})
	assert.ErrorIs(t, err, io.ErrShortBuffer)
	assert.EqualValues(t, 12345, n)
	rest, err := io.ReadAll(a)
	assert.NoError(t, err)
	assert.True(t, bytes.Equal(want[12345:], rest))
	require.NoError(t, b.Close())
}

func TestWriteBuffersSharesMessages(t *testing.T) {
	a, b := methodPair(t, "sdp", nil)
	var v net.Buffers
	var want []byte
	for i := range 1000 {
		piece := random(1 + i%200)
		if i == 500 {
			piece = random(1 << 20)
		}
		if i%7 == 0 {
			piece = nil
		}
		v = append(v, piece)
		want = append(want, piece...)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := io.ReadAll(b)
		assert.NoError(t, err)
		assert.True(t, bytes.Equal(want, got))
	})
	c := a.(*Conn)
	n, err := c.WriteBuffers(&v)
	assert.NoError(t, err)
	assert.EqualValues(t, len(want), n)
	assert.Empty(t, v)
	require.NoError(t, a.Close())
	wg.Wait()
	require.NoError(t, b.Close())
	assert.Less(t, c.Stats().BcopySent.Messages, uint64(120), "the slices shared messages")
}

func TestStatsCount(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	before := Stats()
	a, b := methodPair(t, "sdp", nil)
	ca, cb := a.(*Conn), b.(*Conn)
	assert.Equal(t, before.Open+2, Stats().Open)
	sameBytes(t, a, b, random(4<<20))
	sent, received := ca.Stats(), cb.Stats()
	assert.Equal(t, engineDevice, sent.Device)
	assert.NotContains(t, sent.Declined, engineDevice)
	assert.Contains(t, sent.Declined, "verbs")
	assert.EqualValues(t, 4<<20, sent.BcopySent.Bytes)
	assert.Equal(t, sent.BcopySent, received.BcopyReceived)
	assert.NotZero(t, received.ControlSent, "credit")
	assert.Positive(t, sent.PeerBufferSize)
	_, err := a.Write([]byte("unread"))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	after := Stats()
	assert.Equal(t, before.Open, after.Open)
	assert.Equal(t, before.Opened+2, after.Opened)
	assert.EqualValues(t, 4<<20+6, after.BcopySent.Bytes-before.BcopySent.Bytes)
}

// logged collects what a Logger is told.
type logged struct {
	mu sync.Mutex
	strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

func TestLoggerIsToldWhyAPeerIsPlain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// It is there until it is asked: one that has gone before has no end to look at.
			c.Read(make([]byte, 1))
			c.Close()
		}
	}()
	var log logged
	d := Dialer{Config: &Config{Devices: []string{engineDevice}, Probe: loopback, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	c.Close()
	log.mu.Lock()
	defer log.mu.Unlock()
	assert.Contains(t, log.String(), "plain TCP")
}

// TestUnaskedDialIsLogged: the log says that a Dial is plain TCP, and why, although no Request was
// sent.
func TestUnaskedDialIsLogged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var log logged
	d := Dialer{Config: &Config{Devices: []string{"iwarp"}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	log.mu.Lock()
	defer log.mu.Unlock()
	assert.Regexp(t, `dial: using plain TCP.* address=`+regexp.QuoteMeta(l.Addr().String())+` plain=no_device`, log.String())
}

// heldConn is a connection whose Writes wait until they are let go.
type heldConn struct {
	net.Conn
	free chan struct{}
}

func (h *heldConn) Write(b []byte) (int, error) {
	<-h.free
	return h.Conn.Write(b)
}

// TestWriteLeavesTheProcess before it returns, also where a goroutine of the device
// writes to a connection of the program's own.
func TestWriteLeavesTheProcess(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		var s net.Conn
		var up sync.WaitGroup
		up.Go(func() {
			var err error
			s, err = Server(context.Background(), y, nil)
			assert.NoError(t, err)
		})
		h := &heldConn{Conn: x, free: make(chan struct{})}
		close(h.free)
		c, err := Client(context.Background(), h, nil)
		require.NoError(t, err)
		up.Wait()
		free := make(chan struct{})
		h.free = free
		written := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("hello"))
			written <- err
		}()
		synctest.Wait()
		assert.Empty(t, written, "it is still in this process")
		require.NoError(t, c.SetWriteDeadline(time.Now())) // the device has it, so it counts as written
		assert.NoError(t, <-written)
		close(free)
		b := make([]byte, 5)
		_, err = io.ReadFull(s, b)
		assert.NoError(t, err)
		assert.Equal(t, "hello", string(b))
		var closing sync.WaitGroup
		for _, end := range []net.Conn{c, s} {
			closing.Go(func() { end.Close() })
		}
		closing.Wait()
	})
}

// TestBuffersOfOneCallStayTogether has two calls of WriteBuffers at once.
func TestBuffersOfOneCallStayTogether(t *testing.T) {
	a, b := methodPair(t, "sdp", nil)
	const calls, slice, slices = 20, 100 << 10, 4
	var wg sync.WaitGroup
	for mark := byte(1); mark <= 2; mark++ {
		wg.Go(func() {
			for range calls {
				var v net.Buffers
				for range slices {
					v = append(v, bytes.Repeat([]byte{mark}, slice))
				}
				_, err := a.(*Conn).WriteBuffers(&v)
				assert.NoError(t, err)
			}
		})
	}
	call := make([]byte, slice*slices)
	for range 2 * calls {
		_, err := io.ReadFull(b, call)
		require.NoError(t, err)
		require.Equal(t, len(call), bytes.Count(call, call[:1]), "another call's bytes are between")
	}
	wg.Wait()
	a.Close()
	b.Close()
}
