//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

const joinTime = time.Second

var stepConfig = rdma.StepConfig{IRD: 16, Buffers: 16, BufSize: 4096, Timeout: joinTime}

func newPlace(t *testing.T) *place {
	t.Helper()
	p, err := listen(stepConfig)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// invite has the place answer what it is told.
func invite(t *testing.T, p *place, peer rdma.Peer) rdma.Invitation {
	t.Helper()
	i, err := p.Invite(peer, func(private []byte) ([]byte, int, error) {
		if string(private) == "refuse me" {
			return nil, 0, errors.New("as you like")
		}
		return append([]byte("re: "), private...), 7, nil
	})
	require.NoError(t, err)
	return i
}

func settle(want string) func([]byte) (int, error) {
	return func(reply []byte) (int, error) {
		if string(reply) != want {
			return 0, errors.New("the reply is " + string(reply))
		}
		return 5, nil
	}
}

func TestPlace(t *testing.T) {
	p := newPlace(t)
	for range 3 {
		i := invite(t, p, rdma.Peer{PID: os.Getpid()})
		a, err := device{}.Dial(t.Context(), i.Address(), stepConfig, []byte("hello"), settle("re: hello"))
		require.NoError(t, err)
		b, err := i.Take(t.Context())
		require.NoError(t, err)
		i.Withdraw() // which is nothing any more
		assert.Equal(t, rdma.Limits{MaxMessage: maxMessage, SendBatch: maxBatch, IRD: 16, ORD: 5, Outlives: true, Elastic: true}, a.Limits())
		assert.Equal(t, 7, b.Limits().ORD)
		for _, way := range [][2]rdma.QueuePair{{a, b}, {b, a}} {
			n, err := way[0].PostSend([]rdma.SendWR{{Header: []byte("message")}})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			var wcs [1]rdma.Completion
			_, err = way[1].Wait(wcs[:])
			require.NoError(t, err)
			assert.Equal(t, "message", string(wcs[0].Buffer.Bytes))
			wcs[0].Buffer.Release()
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// TestPlaceTurnsAway whom it has not invited, or who does not behave.
func TestPlaceTurnsAway(t *testing.T) {
	p := newPlace(t)
	dial := func(a rdma.Address, say string) error {
		q, err := device{}.Dial(t.Context(), a, stepConfig, []byte(say), settle("re: "+say))
		if err == nil {
			t.Cleanup(func() { q.Abort() })
		}
		return err
	}
	t.Run("wrong token", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{})
		defer i.Withdraw()
		a := i.Address()
		a.Token[15]++
		assert.ErrorContains(t, dial(a, "x"), "the token is not good")
	})
	t.Run("a token twice", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{})
		require.NoError(t, dial(i.Address(), "x"))
		assert.ErrorContains(t, dial(i.Address(), "x"), "the token is not good")
		i.Withdraw() // and the channel that nobody has taken
	})
	t.Run("a token too late", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{})
		i.Withdraw()
		assert.ErrorContains(t, dial(i.Address(), "x"), "the token is not good")
	})
	t.Run("another process", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{PID: 1})
		assert.ErrorContains(t, dial(i.Address(), "x"), "another process")
		_, err := i.Take(t.Context())
		assert.ErrorContains(t, err, "another process")
	})
	t.Run("refused", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{})
		assert.ErrorContains(t, dial(i.Address(), "refuse me"), "as you like")
		_, err := i.Take(t.Context())
		assert.ErrorContains(t, err, "as you like")
	})
	t.Run("unsettled", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{})
		_, err := device{}.Dial(t.Context(), i.Address(), stepConfig, []byte("x"), settle("y"))
		assert.ErrorContains(t, err, "the reply is re: x")
		_, err = i.Take(t.Context())
		assert.Error(t, err)
	})
	t.Run("nobody comes", func(t *testing.T) {
		i := invite(t, p, rdma.Peer{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := i.Take(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		i.Withdraw()
	})
	t.Run("nobody is there", func(t *testing.T) {
		assert.Error(t, dial(rdma.Address{Socket: "sdp-nobody"}, "x"))
		assert.Error(t, dial(rdma.Address{}, "x"))
	})
	for _, v := range []struct {
		name string
		say  func(b []byte) []byte
		fds  func(t *testing.T) []int
		keep bool // the invitation: it was not heard of
	}{
		{"no descriptor", nil, func(*testing.T) []int { return nil }, true},
		{"two descriptors", nil, func(t *testing.T) []int { f := goodFile(t); return []int{f, f} }, true},
		{"more descriptors than there is room for", nil, func(t *testing.T) []int {
			f := goodFile(t)
			return []int{f, f, f, f, f, f, f, f, f, f, f, f}
		}, true},
		{"a pipe", nil, func(t *testing.T) []int {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			t.Cleanup(func() { r.Close(); w.Close() })
			return []int{int(r.Fd())}
		}, false},
		{"a file that can be cut short", nil, func(t *testing.T) []int { return []int{int(memoryFile(t, areaLen, 0).Fd())} }, false},
		{"no magic", func(b []byte) []byte { b[0]++; return b }, nil, true},
		{"half of it", func(b []byte) []byte { return b[:openingLen-1] }, nil, true},
		{"says too much", func(b []byte) []byte { binary.NativeEndian.PutUint16(b[openingLen-2:], 256); return b }, nil, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			i := invite(t, p, rdma.Peer{})
			defer i.Withdraw()
			a := i.Address()
			files := []int{goodFile(t)}
			if v.fds != nil {
				files = v.fds(t)
			}
			before := descriptors(t)
			c, err := net.Dial("unix", "@"+a.Socket)
			require.NoError(t, err)
			conn := c.(*net.UnixConn)
			b := opening1(a, "x")
			if v.say != nil {
				b = v.say(b)
			}
			_, _, err = conn.WriteMsgUnix(b, unix.UnixRights(files...), nil)
			require.NoError(t, err)
			conn.CloseWrite()
			answer, _ := io.ReadAll(conn)
			assert.False(t, len(answer) > 0 && answer[len(magic)]&refused == 0, "it was admitted")
			conn.Close()
			if v.keep { // the good one still may come
				require.NoError(t, dial(a, "x"))
				q, err := i.Take(t.Context())
				require.NoError(t, err)
				q.Abort()
			} else {
				_, err := i.Take(t.Context())
				assert.Error(t, err)
			}
			left := before
			if v.keep {
				left++ // the good one's
			}
			assert.Eventually(t, func() bool { return descriptors(t) <= left }, 5*time.Second, time.Millisecond)
		})
	}
}

// TestDescriptorWithEachByte: however an opening is cut, and whatever comes with its
// pieces, nobody has us hold more descriptors than a few.
func TestDescriptorWithEachByte(t *testing.T) {
	p := newPlace(t)
	i := invite(t, p, rdma.Peer{})
	defer i.Withdraw()
	f := goodFile(t)
	c, err := net.Dial("unix", "@"+i.Address().Socket)
	require.NoError(t, err)
	defer c.Close()
	before := descriptors(t)
	for _, b := range opening1(i.Address(), "x")[:openingLen-1] {
		if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte{b}, unix.UnixRights(f), nil); err != nil {
			break
		}
	}
	// Until it has heard enough.
	closed, most := make(chan struct{}), 0
	go func() {
		defer close(closed)
		c.Read(make([]byte, 1))
	}()
	for done := false; !done; {
		select {
		case <-closed:
			done = true
		default:
			most = max(most, descriptors(t))
		}
	}
	assert.LessOrEqual(t, most-before, 8, "descriptors")
}

// opening1 is a good opening.
func opening1(a rdma.Address, say string) []byte {
	b := append([]byte(magic), a.Token[:]...)
	b = append(b, make([]byte, 8+nonceLen)...)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(say)))
	return append(b, say...)
}

func goodFile(t *testing.T) int { return int(memoryFile(t, areaLen, areaSeals).Fd()) }

// descriptors counts those of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// TestPlaceIsNotHeldUp by those who connect and are silent.
func TestPlaceIsNotHeldUp(t *testing.T) {
	p := newPlace(t)
	i := invite(t, p, rdma.Peer{})
	for range maxJoining - 1 {
		c, err := net.Dial("unix", "@"+i.Address().Socket)
		require.NoError(t, err)
		defer c.Close()
	}
	begin := time.Now()
	a, err := device{}.Dial(t.Context(), i.Address(), stepConfig, []byte("x"), settle("re: x"))
	require.NoError(t, err)
	assert.Less(t, time.Since(begin), joinTime)
	b, err := i.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Close()) // nor is Close, and the channel goes on
	_, err = a.PostSend([]rdma.SendWR{{Header: []byte("x")}})
	require.NoError(t, err)
	var wcs [1]rdma.Completion
	n, err := b.Wait(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	wcs[0].Buffer.Release()
	a.Abort()
	b.Abort()
	_, err = p.Invite(rdma.Peer{}, nil)
	assert.ErrorIs(t, err, net.ErrClosed)
}

// TestMemoryOutOfReach: if one end cannot read the other's memory, neither end
// tries to.
func TestMemoryOutOfReach(t *testing.T) {
	p := newPlace(t)
	i := invite(t, p, rdma.Peer{})
	c, err := net.Dial("unix", "@"+i.Address().Socket)
	require.NoError(t, err)
	conn := c.(*net.UnixConn)
	defer conn.Close()
	// The nonce is not where the opening says.
	_, _, err = conn.WriteMsgUnix(opening1(i.Address(), "x"), unix.UnixRights(goodFile(t)), nil)
	require.NoError(t, err)
	h, err := readAnswer(conn)
	require.NoError(t, err)
	assert.Zero(t, h.flags&canRead)
	assert.True(t, try(os.Getpid(), h.address, h.nonce), "its own is")
	assert.False(t, try(os.Getpid(), h.address+1, h.nonce))
	assert.False(t, try(0, h.address, h.nonce))
	_, err = conn.Write([]byte{canRead}) // a lie changes nothing
	require.NoError(t, err)
	q, err := i.Take(t.Context())
	require.NoError(t, err)
	defer q.Abort()
	assert.True(t, q.Limits().BufferedOnly)
	assert.Error(t, q.PostRead(rdma.ReadWR{Local: make([]byte, 1)}))
	assert.Error(t, q.PostWrite(rdma.WriteWR{Local: make([]byte, 1)}))
}

func TestUsers(t *testing.T) {
	me := os.Geteuid()
	assert.NoError(t, allowed(me, nil))
	assert.Error(t, allowed(me+1, nil))
	assert.NoError(t, allowed(me+1, []int{me + 1}))
	assert.Error(t, allowed(unmapped, []int{unmapped}))
	assert.NoError(t, device{}.Reaches(rdma.Peer{SameHost: true}))
	assert.Error(t, device{}.Reaches(rdma.Peer{}))
}

// TestMemoryOfOursOutOfReach: the end that listens cannot read ours, though we can
// read its.
func TestMemoryOfOursOutOfReach(t *testing.T) {
	name := "sdp-out-of-reach-" + rand.Text()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	require.NoError(t, err)
	defer ln.Close()
	var mine nonce
	last := make(chan byte, 1)
	go func() {
		conn, err := ln.AcceptUnix()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		o, err := readOpening(conn)
		if assert.NoError(t, err) {
			unix.Close(o.file)
			assert.True(t, try(os.Getpid(), o.address, o.nonce[:]))
			conn.Write(appendAnswer(0, &mine, nil))
			var b [1]byte
			io.ReadFull(conn, b[:])
			last <- b[0]
		}
	}()
	q, err := device{}.Dial(t.Context(), rdma.Address{Socket: name}, stepConfig, nil, settle(""))
	require.NoError(t, err)
	defer q.Abort()
	assert.True(t, q.Limits().BufferedOnly)
	assert.Zero(t, <-last&canRead)
}

// TestByteBehindItsTime: a machine that has stood still finds that the time of a
// byte is over before it finds the byte.
func TestByteBehindItsTime(t *testing.T) {
	p, err := listen(stepConfig)
	require.NoError(t, err)
	defer p.Close()
	dials, listens := socketPair(t)
	joined := make(chan *QueuePair, 1)
	go func() {
		q, err := join(dials, rdma.Address{}, stepConfig, []byte("hello"), settle("re: hello"))
		assert.NoError(t, err)
		joined <- q
	}()
	o, err := readOpening(listens)
	require.NoError(t, err)
	pid, uid, err := credentials(listens, nil)
	require.NoError(t, err)
	listens.SetReadDeadline(past)
	q, err := p.admit(listens, o, pid, uid, func([]byte) ([]byte, int, error) { return []byte("re: hello"), 7, nil })
	require.NoError(t, err)
	defer q.Abort()
	defer (<-joined).Abort()
}
