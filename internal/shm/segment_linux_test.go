package shm

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
)

// segments returns both views of a segment.
func segments(t *testing.T, peer Peer) (made, opened *Segment) {
	t.Helper()
	made, err := New(peer)
	require.NoError(t, err)
	opened, err = Open(peer, made.File())
	require.NoError(t, err)
	made.Sent()
	return made, opened
}

// ends returns both views of a new segment, and the doorbells of both ends.
func ends(t *testing.T) (s [2]*Segment, b [2]*Doorbell) {
	t.Helper()
	made, opened := segments(t, Peer{})
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	for i, fd := range fds {
		b[i], err = NewDoorbell(fd)
		require.NoError(t, err)
		t.Cleanup(b[i].Close)
	}
	t.Cleanup(made.Unmap)
	t.Cleanup(opened.Unmap)
	return [2]*Segment{made, opened}, b
}

// TestSegment: what one end puts the other takes, in both directions, and the gates are the same.
func TestSegment(t *testing.T) {
	s, _ := ends(t)
	for i := range s {
		out, in := s[i].Out(), s[1-i].In()
		n, err := out.Put([]byte("hello"))
		require.NoError(t, err)
		require.Equal(t, 5, n)
		b := make([]byte, 10)
		n, err = in.Take(b)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(b[:n]))
		s[i].OutGate().Join(7)
		assert.EqualValues(t, 7, s[1-i].InGate().Load().Sent())
	}
	assert.False(t, s[0].Leaving())
	s[1].Leave()
	assert.True(t, s[0].Leaving())
}

// TestOpenRefuses: a file that another process could cut short, or that is none of ours, is not mapped.
func TestOpenRefuses(t *testing.T) {
	plain, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer plain.Close()
	_, err = Open(Peer{}, int(plain.Fd()))
	assert.Error(t, err)

	file := func(size int64, seals int) int {
		fd, err := memfd()
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		require.NoError(t, unix.Ftruncate(fd, size))
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		require.NoError(t, err)
		return fd
	}
	_, err = Open(Peer{}, file(segmentLen, unix.F_SEAL_GROW))
	assert.ErrorContains(t, err, "seals")
	_, err = Open(Peer{}, file(segmentLen, seals|unix.F_SEAL_FUTURE_WRITE))
	assert.ErrorContains(t, err, "seals")
	_, err = Open(Peer{}, file(segmentLen-1, seals))
	assert.ErrorContains(t, err, "bytes, want")
	_, err = Open(Peer{}, file(segmentLen, seals))
	assert.ErrorContains(t, err, "layout")
}

// TestShrink: a ring that has grown gives the pages of its large area back once they are read, and goes on.
func TestShrink(t *testing.T) {
	s, _ := ends(t)
	out, in := s[0].Out(), s[1].In()
	out.Widen()
	resident := func() (pages int) {
		area := out.mem[areas-1]
		vec := make([]byte, len(area)/os.Getpagesize())
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&area[0])), uintptr(len(area)), uintptr(unsafe.Pointer(&vec[0])))
		require.Zero(t, e)
		for _, v := range vec {
			pages += int(v & 1)
		}
		return pages
	}
	b := make([]byte, piece)
	for round := range 3 {
		total := 0
		for {
			for i := range b {
				b[i] = byte(total>>16 + round)
			}
			n, err := out.Put(b)
			require.NoError(t, err)
			if total += n; n == 0 && !out.Grow() {
				break
			}
		}
		assert.Greater(t, total, large)
		assert.Positive(t, resident())
		assert.False(t, out.Shrink())
		for got := 0; got < total; {
			n, err := in.Take(b)
			require.NoError(t, err)
			require.Positive(t, n)
			got += n
		}
		assert.True(t, out.Shrink())
		assert.Zero(t, resident())
	}
}

// TestDoorbell: a reader and a writer that sleep at one end are both woken, by the peer, by Rouse and by
// the peer's end, at whatever point of falling asleep they are.
func TestDoorbell(t *testing.T) {
	_, b := ends(t)
	const rounds = 1000
	var sleeps, news [2]atomic.Bool
	woken := make(chan bool)
	for i := range news {
		go func() {
			for range rounds {
				b[0].Sleep(func() { sleeps[i].Store(true) }, news[i].Load, time.Time{})
				news[i].Store(false)
				woken <- true
			}
		}()
	}
	for round := range rounds {
		for i := range news {
			news[i].Store(true)
		}
		switch {
		case round == rounds-1:
			b[1].Close()
		case round%2 == 0:
			if sleeps[0].Swap(false) || sleeps[1].Swap(false) {
				b[1].Ring()
			}
		default:
			b[0].Rouse()
		}
		<-woken
		<-woken
	}
	b[0].Look()
	assert.True(t, b[0].Gone())
}

// TestDoorbellDeadline: a sleep ends at its deadline, also one that begins after it.
func TestDoorbellDeadline(t *testing.T) {
	_, b := ends(t)
	never := func() bool { return false }
	for _, after := range []time.Duration{-time.Hour, time.Millisecond, -time.Hour, time.Millisecond} {
		b[0].Sleep(func() {}, never, time.Now().Add(after))
	}
	assert.False(t, b[0].Gone())
}

// TestLookTakesNothing: to look whether the peer has gone does not use up its ring.
func TestLookTakesNothing(t *testing.T) {
	_, b := ends(t)
	b[1].Ring()
	b[0].Look()
	assert.False(t, b[0].Gone())
	unread := 0
	b[0].raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	assert.Equal(t, 1, unread)
	b[1].Close()
	b[0].Look()
	assert.True(t, b[0].Gone())
}

// TestSecondDeadline: the deadline of a goroutine that waits for the one who listens ends its sleep.
func TestSecondDeadline(t *testing.T) {
	_, b := ends(t)
	var done atomic.Bool
	first := make(chan bool)
	go func() {
		b[0].Sleep(func() {}, done.Load, time.Time{})
		close(first)
	}()
	for listens := false; !listens; runtime.Gosched() {
		b[0].mu.Lock()
		listens = b[0].listens
		b[0].mu.Unlock()
	}
	b[0].Sleep(func() {}, func() bool { return false }, time.Now().Add(time.Millisecond))
	done.Store(true)
	b[1].Ring()
	<-first
}

// TestDoze: readers of many connections that wait at the same time are woken, whoever looks after them.
func TestDoze(t *testing.T) {
	const pairs, rounds = 8, 2000
	var group sync.WaitGroup
	for range pairs {
		s, b := ends(t)
		for i := range s {
			out, in := s[i].Out(), s[i].In()
			ready := func() bool { return !in.Empty() }
			x := &spin.Watched{Ready: ready, Wake: b[i].Wake}
			read := func() {
				got := make([]byte, 1)
				for {
					n, err := in.Take(got)
					if n > 0 || !assert.NoError(t, err) {
						return
					}
					if !b[i].Doze(x, in.Sleep, ready, time.Time{}) {
						in.Awake()
					}
				}
			}
			group.Go(func() {
				for range rounds {
					if i == 1 {
						read()
					}
					_, err := out.Put([]byte{1})
					assert.NoError(t, err)
					if out.WakeReader() {
						b[i].Ring()
					}
					if i == 0 {
						read()
					}
				}
			})
		}
	}
	group.Wait()
}

// TestDozeEnds: a reader that waits among others is woken by Rouse, and returns at its deadline.
func TestDozeEnds(t *testing.T) {
	const readers = 8
	var group sync.WaitGroup
	var done atomic.Bool
	var bells []*Doorbell
	deadline := time.Now().Add(50 * time.Millisecond)
	for i := range readers {
		_, b := ends(t)
		bells = append(bells, b[0])
		at, ready := deadline, func() bool { return false }
		if i%2 == 0 {
			at, ready = time.Time{}, done.Load
		}
		x := &spin.Watched{Ready: ready, Wake: b[0].Wake}
		group.Go(func() { b[0].Doze(x, func() {}, ready, at) })
	}
	done.Store(true)
	for _, b := range bells {
		b.Rouse()
	}
	group.Wait()
	assert.False(t, time.Now().Before(deadline))
}
