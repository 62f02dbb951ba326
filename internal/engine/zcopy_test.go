package engine

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// zcopyPair is pair with Writes of more than threshold bytes advertised.
func zcopyPair(t testing.TB, threshold int) (c, s *Conn) {
	t.Helper()
	t.Setenv(thresholdVariable, strconv.Itoa(threshold))
	return pair(t)
}

// modeOut is the mode in which the connection sends, and its Writes' counts.
func modeOut(c *Conn) (wire.Mode, zcopy.Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Parts().ZSource.Mode(), c.session.Parts().ZSource.Counts()
}

// countsIn are the counts of the connection's Reads.
func countsIn(c *Conn) zcopy.Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Parts().ZSink.Counts()
}

// zcopyThresholds are those that tests go through.
var zcopyThresholds = []int{1, 30_000, 1 << 20}

// grownSize is how many bytes a private buffer has when it has grown.
const grownSize = 64750

// zcopySizes are sizes of Writes on both sides of each edge.
func zcopySizes(threshold int) []int {
	sizes := []int{0, 1, 2, 3, zcopy.Ride - 1, zcopy.Ride, zcopy.Ride + 1, 256 << 10, 1 << 20, 3 << 20}
	for _, edge := range []int{recvSize - wire.HeaderLen, recvSize, grownSize - wire.HeaderLen, grownSize, 4 * recvSize, threshold} {
		sizes = append(sizes, edge-1, edge, edge+1)
	}
	return sizes
}

// TestZcopySizes writes every size in both directions at once, and reads them in
// every way. What arrives is compared by its hash.
func TestZcopySizes(t *testing.T) {
	thresholds := zcopyThresholds
	if testing.Short() {
		thresholds = thresholds[:1]
	}
	for _, threshold := range thresholds {
		sizes := zcopySizes(threshold)
		r := rand.New(rand.NewPCG(uint64(threshold), 0))
		total := 0
		if !raceEnabled {
			sizes = slices.Repeat(sizes, 4)
		}
		r.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
		for _, size := range sizes {
			total += size
		}
		for _, v := range []struct {
			name string
			read func(c *Conn, w io.Writer) error
		}{
			{"4 KB from a bufio.Reader", func(c *Conn, w io.Writer) error {
				return readAtATime(bufio.NewReader(c), w, 4<<10)
			}},
			{"32 KB", func(c *Conn, w io.Writer) error { return readAtATime(c, w, 32<<10) }},
			{"1 MB", func(c *Conn, w io.Writer) error { return readAtATime(c, w, 1<<20) }},
			{"whole Writes", func(c *Conn, w io.Writer) error {
				b := make([]byte, 3<<20)
				for _, size := range sizes {
					if _, err := io.ReadFull(c, b[:size]); err != nil {
						return err
					}
					w.Write(b[:size])
				}
				return readAtATime(c, w, 1)
			}},
			{"all at once", func(c *Conn, w io.Writer) error {
				b := make([]byte, total)
				_, err := io.ReadFull(c, b)
				w.Write(b)
				if err != nil {
					return err
				}
				return readAtATime(c, w, 1)
			}},
		} {
			t.Run(fmt.Sprintf("threshold %d, read %s", threshold, v.name), func(t *testing.T) {
				c, s := zcopyPair(t, threshold)
				sent, got := make([]sum, 2), make([]sum, 2)
				var calls sync.WaitGroup
				for i, c := range []*Conn{c, s} {
					calls.Go(func() {
						var err error
						sent[i], err = writeSizes(c, sizes, uint64(i))
						assert.NoError(t, err)
						assert.NoError(t, c.CloseWrite())
					})
					calls.Go(func() {
						h := sha256.New()
						n := &countWriter{w: h}
						assert.NoError(t, v.read(c, n))
						got[1-i] = sum{n.n, [32]byte(h.Sum(nil))}
					})
				}
				calls.Wait()
				assert.Equal(t, sent, got)
				for _, way := range [2][2]*Conn{{c, s}, {s, c}} {
					out, in := way[0].Stats(), way[1].Stats()
					// What the peer has fetched both have counted, what was written into its memory too.
					assert.Equal(t, out.ZCopySent, in.ZCopyReceived)
					assert.EqualValues(t, total, out.ZCopySent+out.BcopySent.Bytes)
					assert.Equal(t, out.BcopySent, in.BcopyReceived)
					assert.NotZero(t, out.Advertised)
				}
			})
		}
	}
}

// sum says what bytes there were.
type sum struct {
	n    int
	hash [32]byte
}

type countWriter struct {
	w io.Writer
	n int
}

func (w *countWriter) Write(b []byte) (int, error) {
	w.n += len(b)
	return w.w.Write(b)
}

// writeSizes makes a Write of each size, and returns what it has written.
func writeSizes(w io.Writer, sizes []int, seed uint64) (sum, error) {
	bytes := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(bytes)
	h, total := sha256.New(), 0
	for i, size := range sizes {
		b := bytes[:size]
		if size > 0 {
			b[0], b[size-1] = byte(i), byte(i) // no two Writes are alike
		}
		n, err := w.Write(b)
		if err != nil {
			return sum{}, err
		}
		if n != size {
			return sum{}, fmt.Errorf("Write of %d bytes returns %d", size, n)
		}
		h.Write(b)
		total += n
	}
	return sum{total, [32]byte(h.Sum(nil))}, nil
}

// readAtATime reads to the end, at most size bytes at a time.
func readAtATime(r io.Reader, w io.Writer, size int) error {
	b := make([]byte, size)
	for {
		n, err := r.Read(b)
		w.Write(b[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A talk is a stream from one end to the other that goes on until it has shown
// what is waited for.
type talk struct {
	t      *testing.T
	c, s   *Conn
	off    int // of the stream
	within time.Time
}

// until repeats a Write of size bytes, which is read at most chunk bytes at a
// time, until shown.
func (k *talk) until(what string, size, chunk int, shown func() bool) {
	k.t.Helper()
	for !shown() {
		require.True(k.t, time.Now().Before(k.within), "%s: not within %d MB; %+v", what, k.off>>20, k.c.Stats().Traffic)
		k.once(size, chunk)
	}
}

// once writes size bytes, for which a Read waits, and reads them.
func (k *talk) once(size, chunk int) {
	k.t.Helper()
	read := make(chan error, 1)
	off := k.off
	k.off += size
	go func() {
		_, err := readStream(k.s, off, off+size, chunk)
		read <- err
	}()
	readWaits(k.s)
	n, err := k.c.Write(streamAt(off, size))
	require.NoError(k.t, err)
	require.Equal(k.t, size, n)
	require.NoError(k.t, <-read)
}

// readWaits returns when a Read, the only call in progress, waits for the peer.
func readWaits(c *Conn) {
	until(c, func() bool { return c.poll.leader == parked && c.poll.background == absent || c.recvErr != nil })
}

// until returns when the connection's state is as is says, which is called with mu
// held.
func until(c *Conn, is func() bool) {
	for done := false; !done; runtime.Gosched() {
		c.mu.Lock()
		done = is()
		c.mu.Unlock()
	}
}

// neverOverdue has nothing withdrawn that c advertises because the peer takes its
// time: the test is of the way that bytes go, on a machine however slow. It comes
// before the first Write.
func neverOverdue(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zcopy.takeUp.timer = time.AfterFunc(0, func() {})
}

// neverGivesUp has calls of c that are to end wait for the peer as long as it takes
// to let go of their memory. It comes before the first of them.
func neverGivesUp(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zcopy.writeAnswer.timer = time.AfterFunc(0, func() {})
	c.zcopy.readAnswer.timer = time.AfterFunc(0, func() {})
}

func newTalk(t *testing.T, c, s *Conn) *talk {
	return &talk{t: t, c: c, s: s, within: time.Now().Add(soon)}
}

// untilMode repeats until the Source is in the mode.
func (k *talk) untilMode(mode wire.Mode, size, chunk int) {
	k.t.Helper()
	k.until(fmt.Sprint("mode ", mode), size, chunk, func() bool {
		m, _ := modeOut(k.c)
		return m == mode
	})
}

// pipelined has the reader wait in large Reads until Writes go into them.
func (k *talk) pipelined() {
	k.t.Helper()
	k.untilMode(wire.ModePipelined, 1<<20, 1<<20)
	before := countsIn(k.s).Adverts
	k.until("a SinkAvail", 1<<20, 1<<20, func() bool { return countsIn(k.s).Adverts > before })
}

// TestReadZcopy: what the peer reads it fetches, in Combined mode. Reads with room
// for all that is left do not ask for Pipelined mode, because none of these
// has more room than a private buffer.
func TestReadZcopy(t *testing.T) {
	const size, chunk = 12_000, recvSize
	c, s, cq, sq := counted(t, 1)
	neverOverdue(c)
	k := newTalk(t, c, s)
	_, before := modeOut(c)
	k.until("Writes that were fetched whole", size, chunk, func() bool {
		_, now := modeOut(c)
		whole := now.Bytes-before.Bytes == size-zcopy.Ride
		before = now
		return whole
	})
	mode, _ := modeOut(c)
	assert.Equal(t, wire.ModeCombined, mode)
	assert.Zero(t, countsIn(s).Adverts, "no Read was advertised")
	reads, writes := sq.counts()
	assert.NotZero(t, reads)
	assert.Zero(t, writes)
	reads, writes = cq.counts()
	assert.Zero(t, reads+writes, "the source has posted nothing")
	assert.NotZero(t, cq.revoked, "the last RdmaRdCompl of an advertisement invalidates it")
	cq.backFromWrite(t)
	sq.backFromRead(t)
}

// TestModes has the source choose each mode for its reason, and come back.
func TestModes(t *testing.T) {
	c, s, cq, sq := counted(t, 1)
	k := newTalk(t, c, s)
	mode, _ := modeOut(c)
	require.Equal(t, wire.ModeCombined, mode)

	k.pipelined() // the reader always waits
	k.until("RDMA Writes", 1<<20, 1<<20, func() bool {
		_, writes := cq.counts()
		return writes > 2
	})
	assert.Zero(t, s.Stats().ZCopySent, "the other direction is as it was")
	other, _ := modeOut(s)
	assert.Equal(t, wire.ModeCombined, other)

	for range 2 {
		k.untilMode(wire.ModeBuffered, 1<<20, 4<<10) // the reader's slices are small
		assert.NotZero(t, countsIn(s).SendSm)
		before := c.Stats()
		for range 5 {
			k.once(1<<20, 4<<10)
		}
		after := c.Stats()
		assert.Equal(t, before.ZCopySent, after.ZCopySent, "everything is copied in Buffered mode")
		assert.Equal(t, before.Advertised, after.Advertised)
		assert.EqualValues(t, 5<<20, after.BcopySent.Bytes-before.BcopySent.Bytes)

		k.until("out of Buffered mode", 1<<20, 1<<20, func() bool { // the reader waits in large Reads again
			m, _ := modeOut(c)
			return m != wire.ModeBuffered
		})
		k.pipelined()
	}
	assert.GreaterOrEqual(t, c.Stats().ModeChanges, uint64(1+2*4))
	cq.backFromWrite(t)
	sq.backFromRead(t)
}

// TestNoZcopyBelowThreshold: a Write of threshold bytes is copied, one more byte
// is advertised.
func TestNoZcopyBelowThreshold(t *testing.T) {
	const threshold = 100_000
	c, s := zcopyPair(t, threshold)
	k := newTalk(t, c, s)
	for range 20 {
		k.once(threshold, 1<<20)
	}
	assert.Zero(t, c.Stats().Advertised)
	k.once(threshold+1, 1<<20)
	assert.EqualValues(t, 1, c.Stats().Advertised)
}

// TestNeverZcopy: with a negative threshold nothing is advertised, and what the
// peer advertises is asked for as Data. So too where the device's own threshold is
// never.
func TestNeverZcopy(t *testing.T) {
	t.Run("negative", func(t *testing.T) {
		t.Setenv(thresholdVariable, "1") // the configuration goes before the environment
		testNeverZcopy(t, -1)
	})
	t.Run("the device's own", func(t *testing.T) {
		t.Setenv(thresholdVariable, "")
		testNeverZcopy(t, 0)
	})
}

func testNeverZcopy(t *testing.T, threshold int) {
	lc := ListenConfig{Config: &Config{ZCopyThreshold: threshold}}
	ln, err := lc.Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: &Config{ZCopyThreshold: 1}}
	nc, ns, err := bothEnds(ln, func(address string) (net.Conn, error) { return d.Dial("sdp", address) })
	require.NoError(t, err)
	c := engineOf(t, nc)
	defer c.Close()
	s := engineOf(t, ns)
	defer s.Close()
	require.False(t, s.session.Parts().ZSource.Wants(1<<30))
	require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
	require.NoError(t, s.SetDeadline(time.Now().Add(soon)))
	k := newTalk(t, c, s)
	k.untilMode(wire.ModeBuffered, 1<<20, 1<<20)
	assert.NotZero(t, s.Stats().SendSmSent)
	back := newTalk(t, s, c)
	for range 20 {
		k.once(1<<20, 1<<20)
		back.once(1<<20, 1<<20)
	}
	assert.Zero(t, s.Stats().Advertised)
	for _, c := range []*Conn{c, s} {
		assert.Zero(t, c.Stats().ZCopySent)
		assert.Zero(t, c.Stats().ZCopyReceived)
	}
	mode, _ := modeOut(c)
	assert.Equal(t, wire.ModeBuffered, mode, "nothing makes it come back")
}
