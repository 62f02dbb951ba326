package iwarp

import (
	"bytes"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// tcpPair returns the two ends of a loopback connection.
func tcpPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server = <-accepted; server == nil {
		t.Fatal("nothing accepted")
	}
	return client, server
}

// smallBuffers makes a kernel hold little of a stream. Its size is fixed then, so a stream that is full
// takes no more than a window's rest until the peer reads.
func smallBuffers(t testing.TB, ends ...net.Conn) {
	t.Helper()
	for _, c := range ends {
		require.NoError(t, c.(*net.TCPConn).SetWriteBuffer(64<<10))
		require.NoError(t, c.(*net.TCPConn).SetReadBuffer(64<<10))
	}
}

// streamOnly hides the descriptor of a connection.
type streamOnly struct{ net.Conn }

func (c streamOnly) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

// connect negotiates a pair of queue pairs over two ends of a stream.
func connect(t testing.TB, client, server net.Conn, cfg Config) (initiator, responder *QueuePair) {
	t.Helper()
	type result struct {
		q   *QueuePair
		err error
	}
	done := make(chan result, 1)
	go func() {
		req, err := ReadRequest(server)
		if err != nil {
			done <- result{nil, err}
			return
		}
		q, err := req.Accept(cfg, nil)
		done <- result{q, err}
	}()
	a, _, err := Connect(client, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return a, r.q
}

// The variants of a queue pair that pass the conformance suite.
var variants = []struct {
	name   string
	cfg    Config
	stream bool // over a net.Conn that has no descriptor
}{
	{name: "crc", cfg: Config{MaxULPDU: 64768}},
	{name: "nocrc", cfg: Config{MaxULPDU: 64768, NoCRC: true}},
	{name: "mss", cfg: Config{MaxULPDU: 1444, Revision: 2, PeerToPeer: true}},
	{name: "stream", cfg: Config{MaxULPDU: 64768}, stream: true},
}

func TestConformance(t *testing.T) { eachVariant(t, rdmatest.Run) }

func TestAllocsConformance(t *testing.T) { eachVariant(t, rdmatest.RunAllocs) }

// eachVariant runs a suite over each of the variants.
func eachVariant(t *testing.T, run func(*testing.T, rdmatest.Pair)) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			run(t, func(t *testing.T) (a, b rdma.QueuePair) {
				client, server := tcpPair(t)
				if v.stream {
					// The suite expects that the process holds more than the kernel takes late.
					smallBuffers(t, client, server)
					client, server = streamOnly{client}, streamOnly{server}
				}
				x, y := connect(t, client, server, v.cfg)
				return x, y
			})
		})
	}
}

func BenchmarkQueuePair(b *testing.B) {
	for _, v := range variants[:2] {
		b.Run(v.name, func(b *testing.B) {
			rdmatest.Benchmark(b, func(b *testing.B) (x, y rdma.QueuePair) {
				client, server := tcpPair(b)
				return connect(b, client, server, v.cfg)
			})
		})
	}
}

// TestResetOfAStream: the error of a connection that is no socket does not name it, so that SDP can
// do that, and is the one that SDP treats as a reset.
func TestResetOfAStream(t *testing.T) {
	client, server := tcpPair(t)
	a, b := connect(t, streamOnly{client}, streamOnly{server}, Config{})
	a.ProvideReceive(1, 1<<10)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Wait(make([]rdma.Completion, 1))
		ended <- err
	}()
	require.NoError(t, b.Abort())
	err := <-ended
	require.ErrorIs(t, err, syscall.ECONNRESET)
	var named *net.OpError
	assert.NotErrorAs(t, err, &named)
	assert.NoError(t, a.Close())

	alert := &net.OpError{Op: "remote error", Err: os.ErrPermission} // as from crypto/tls
	assert.Equal(t, error(alert), bare(alert), "its Op says what it is")
}

// TestReadsAndSendsDoNotStarveEachOther: one end sends without pause, and the other reads from it
// without pause.
func TestReadsAndSendsDoNotStarveEachOther(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			client, server := tcpPair(t)
			if v.stream {
				client, server = streamOnly{client}, streamOnly{server}
			}
			a, b := connect(t, client, server, v.cfg)
			a.ProvideReceive(1<<20, 64<<10)
			b.ProvideReceive(16, 4096)
			source := make([]byte, 1<<20)
			for i := range source {
				source[i] = byte(i >> 8)
			}
			region, err := b.Register(source, rdma.RemoteRead)
			if err != nil {
				t.Fatal(err)
			}
			locals := make([][]byte, 4)
			read := func(id uint64) {
				wr := rdma.ReadWR{ID: id, Local: locals[id], STag: region.STag, VA: region.VA}
				if err := a.PostRead(wr); err != nil {
					t.Fatal(err)
				}
			}
			for id := range locals {
				locals[id] = make([]byte, len(source))
				read(uint64(id))
			}
			a.Flush()

			var ends sync.WaitGroup
			ends.Go(func() { // the Read Request, and the end
				for {
					if _, err := b.Wait(make([]rdma.Completion, 1)); err != nil {
						return
					}
				}
			})
			ends.Go(func() {
				message := []rdma.SendWR{{Header: []byte{1}, Payload: make([]byte, 60_000)}}
				for {
					n, err := b.PostSend(message)
					if err == nil && n == 0 {
						err = b.WaitRoom()
					}
					if err != nil {
						return
					}
				}
			})
			watchdog := time.AfterFunc(time.Minute, func() { a.Abort() })
			defer watchdog.Stop()
			wcs, reads, sends := make([]rdma.Completion, 8), 0, 0
			for reads < len(locals) || sends < 100 {
				n, err := a.Wait(wcs)
				if err != nil {
					t.Fatalf("%d Reads, %d messages: %v", reads, sends, err)
				}
				for _, c := range wcs[:n] {
					if c.Op == rdma.OpRead {
						if !bytes.Equal(locals[c.ID], source) {
							t.Error("the bytes differ")
						}
						reads++
						clear(locals[c.ID])
						read(c.ID)
						continue
					}
					sends++
					c.Buffer.Release()
				}
			}
			a.Close()
			b.Close()
			ends.Wait()
		})
	}
}

// TestResponderWaitsToBeSpokenTo: nothing that a responder posts is sent before it has received
// something (RFC 5044 §7.1.2), and everything afterwards.
func TestResponderWaitsToBeSpokenTo(t *testing.T) {
	for _, stream := range []bool{false, true} {
		client, server := tcpPair(t)
		if stream {
			server = streamOnly{server}
		}
		_, err := client.Write(append([]byte(mpa.RequestKey), 0, 1, 0, 0))
		require.NoError(t, err)
		request, err := ReadRequest(server)
		require.NoError(t, err)
		q, err := request.Accept(Config{NoCRC: true}, nil)
		require.NoError(t, err)
		_, err = io.ReadFull(client, make([]byte, mpa.KeyLen+4)) // the Reply
		require.NoError(t, err)
		var written atomic.Int32
		q.t = &counted{q.t, &written}

		q.ProvideReceive(1, 100)
		assert.True(t, q.Busy())
		n, err := q.PostSend([]rdma.SendWR{{Header: []byte("header"), Payload: []byte("payload")}})
		assert.NoError(t, err)
		assert.Zero(t, n)
		n, err = q.PostSend([]rdma.SendWR{{Header: []byte("header")}})
		assert.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.NoError(t, q.PostRead(rdma.ReadWR{STag: 7, VA: 8, Local: make([]byte, 9)}))
		assert.NoError(t, q.PostWrite(rdma.WriteWR{STag: 7, VA: 8, Local: []byte("local")}))
		q.Flush()
		assert.Zero(t, written.Load(), "the responder has spoken first")

		_, err = client.Write(fpdu(false, untagged(3, true, 0, 0, 1, 0, []byte("you may"))))
		require.NoError(t, err)
		n, err = q.Wait(make([]rdma.Completion, 1))
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		want := slices.Concat(
			fpdu(false, untagged(3, true, 0, 0, 1, 0, []byte("header"))),
			fpdu(false, untagged(1, true, 0, 1, 1, 0, readRequestOf(1, 0, 9, 7, 8))),
			fpdu(false, tagged(0, true, 7, 8, []byte("local"))))
		got := make([]byte, len(want))
		_, err = io.ReadFull(client, got)
		assert.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Eventually(t, func() bool { return !q.Busy() }, time.Minute, time.Millisecond, "what was written has left, and the device knows it soon")
		q.Close()
		client.Close()
	}
}

// counted counts the calls of write.
type counted struct {
	transport
	calls *atomic.Int32
}

func (c *counted) write(pieces [][]byte) (int, error) {
	c.calls.Add(1)
	return c.transport.write(pieces)
}

// TestFinishAfterReset is done although the peer's kernel has not taken everything: it never will.
func TestFinishAfterReset(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			client, server := tcpPair(t)
			peer := server.(*net.TCPConn)
			stuck := &stuck{Conn: client, reset: make(chan struct{})}
			if v.stream {
				client, server = stuck, streamOnly{server}
			}
			a, _ := connect(t, client, server, v.cfg)
			stuck.holds.Store(true)
			if _, ok := a.t.(*streamTransport); ok && !v.stream {
				t.Skip("missing: a queue pair that uses the kernel's socket")
			}
			// A kernel offers a window of 64 KB at first.
			const most = 100 << 10
			for unsent := 0; unsent < most; unsent, _ = a.t.unsent() {
				_, err := a.PostSend([]rdma.SendWR{{Header: make([]byte, 1000)}})
				require.NoError(t, err)
				require.False(t, a.Busy())
			}
			ended, done := a.Finish()
			assert.True(t, ended)
			assert.False(t, done)
			require.NoError(t, peer.SetLinger(0))
			require.NoError(t, peer.Close())
			close(stuck.reset)
			require.Eventually(t, func() bool { ended, done := a.Finish(); return ended && done }, time.Minute, time.Millisecond)
			require.NoError(t, a.Close())
		})
	}
}

// stuck is a connection whose Writes, once it holds them, wait for a reset.
type stuck struct {
	net.Conn
	holds atomic.Bool
	reset chan struct{}
}

func (c *stuck) Write(b []byte) (int, error) {
	if !c.holds.Load() {
		return c.Conn.Write(b)
	}
	<-c.reset
	return 0, syscall.ECONNRESET
}
