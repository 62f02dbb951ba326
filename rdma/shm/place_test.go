//go:build linux

package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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

var stepConfig = rdma.StepConfig{IRD: 16, Buffers: 16, BufSize: 4096, Timeout: joinTime, ZeroCopy: true}

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
}

// TestPlaceIsNotFooled: whatever a peer says instead of what it should, the place ends
// that connection, holds no descriptor of it, and serves the next one.
func TestPlaceIsNotFooled(t *testing.T) {
	half := func(b []byte) []byte { return b[:len(b)-1] }
	for _, v := range []struct {
		name         string
		opening      func(b []byte) []byte
		response     func(b []byte) []byte
		withOpening  []byte // descriptors of these kinds; see filesOf
		withResponse []byte
		withLast     []byte
		keep         bool // the invitation: it was not heard of
		error        string
	}{
		{name: "no magic", opening: func(b []byte) []byte { b[0]++; return b }, keep: true},
		{name: "half an opening", opening: half, keep: true},
		{name: "another name", opening: func(b []byte) []byte { b[len(magic)]++; return b }, keep: true},
		{name: "a descriptor with the opening", withOpening: []byte{'m'}, keep: true},
		{name: "many descriptors with the opening", withOpening: []byte("mmmmmmmmmmmmmmmm"), keep: true},
		{name: "another proof", response: func(b []byte) []byte { b[0]++; return b }, error: "does not have the token"},
		{name: "no proof", response: func(b []byte) []byte { return append(make([]byte, proofLen), b[proofLen:]...) }, error: "does not have the token"},
		{name: "half a response", response: half, error: "has closed the channel"},
		{name: "says too much", response: func(b []byte) []byte {
			binary.NativeEndian.PutUint16(b[responseLen-2:], 256)
			return b
		}, error: "at most 255"},
		{name: "a descriptor with the response", withResponse: []byte{'p'}, error: "none is wanted"},
		{name: "a descriptor with the last byte", withLast: []byte{'m'}, error: "none is wanted"},
	} {
		t.Run(v.name, func(t *testing.T) {
			onEachKernel(t, func(t *testing.T) {
				p := newPlace(t)
				i := invite(t, p, rdma.Peer{})
				defer i.Withdraw()
				before := descriptors(t)
				g := comesBy(t, i.Address())
				ok := g.says(t, changed(g.opening.append(nil), v.opening), v.withOpening)
				if ok && !v.keep {
					g.challenged(t)
					r := g.response("x")
					ok = g.says(t, changed(r.append(nil), v.response), v.withResponse)
				}
				if ok && v.withLast != nil {
					h, fd, err := readAnswer(g.UnixConn)
					require.NoError(t, err)
					assert.Equal(t, "re: x", string(h.private))
					unix.Close(fd)
					ok = g.says(t, []byte{0}, v.withLast)
				}
				g.CloseWrite()
				io.Copy(io.Discard, g)
				g.Close()
				switch _, err := i.Take(soon(t)); {
				case v.keep:
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				case ok:
					assert.ErrorContains(t, err, v.error)
				default: // the kernel has told the peer, and nothing came
					assert.ErrorContains(t, err, "has closed the channel")
				}
				if v.keep { // the good one still may come
					q, err := device{}.Dial(t.Context(), i.Address(), stepConfig, []byte("x"), settle("re: x"))
					require.NoError(t, err)
					q.Abort()
					i.Withdraw()
				}
				assert.Eventually(t, func() bool { return descriptors(t) <= before }, 5*time.Second, time.Millisecond)
			})
		})
	}
}

// soon is a context that ends within moments.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func changed(b []byte, how func([]byte) []byte) []byte {
	if how == nil {
		return b
	}
	return how(b)
}

// guest is a peer that opens a channel step by step.
type guest struct {
	*net.UnixConn
	token     [16]byte
	opening   opening
	challenge challenge
}

// comesBy connects to where an invitation says.
func comesBy(t testing.TB, a rdma.Address) *guest {
	t.Helper()
	c, err := net.Dial("unix", "@"+a.Socket)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	return newGuest(c.(*net.UnixConn), a.Token)
}

func newGuest(c *net.UnixConn, token [16]byte) *guest {
	return &guest{UnixConn: c, token: token, opening: opening{name: nameOf(token), nonce: newNonce()}}
}

// says writes b, with descriptors, and reports whether the kernel lets it.
func (g *guest) says(t testing.TB, b, kinds []byte) bool {
	t.Helper()
	var rights []byte
	files := filesOf(t, kinds)
	if len(kinds) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err := g.WriteMsgUnix(b, rights, nil)
	for _, f := range files {
		f.Close()
	}
	if len(kinds) > 0 && !takesRights.Load() {
		assert.ErrorIs(t, err, unix.EPERM)
		return false
	}
	require.NoError(t, err)
	return true
}

// challenged reads the challenge, which is that of the place.
func (g *guest) challenged(t testing.TB) {
	t.Helper()
	var err error
	g.challenge, err = readChallenge(g.UnixConn)
	require.NoError(t, err)
	assert.Equal(t, proof(g.token, listens, g.opening.nonce, g.challenge.nonce), g.challenge.proof[:])
}

// response is a good one, of an end that wants no reach.
func (g *guest) response(say string) response {
	return response{proof: [proofLen]byte(proof(g.token, dials, g.opening.nonce, g.challenge.nonce)), private: []byte(say)}
}

// filesOf makes memory files that are good (m), that may shrink (s), or that have
// another layout (l), and pipes (p).
func filesOf(t testing.TB, kinds []byte) (files []*os.File) {
	t.Helper()
	for _, k := range kinds {
		switch k {
		case 'm':
			files = append(files, memoryFile(t, areaLen, areaSeals))
		case 's':
			files = append(files, memoryFile(t, areaLen, areaSeals&^unix.F_SEAL_SHRINK))
		case 'l':
			f := memoryFile(t, areaLen, areaSeals)
			_, err := f.WriteAt([]byte{layout - 1}, 0)
			require.NoError(t, err)
			files = append(files, f)
		default:
			r, w, err := os.Pipe()
			require.NoError(t, err)
			w.Close()
			files = append(files, r)
		}
	}
	return files
}

// onEachKernel runs a test with this kernel, and as on one without SO_PASSRIGHTS.
func onEachKernel(t *testing.T, f func(t *testing.T)) {
	t.Run("this kernel", f)
	t.Run("an old kernel", func(t *testing.T) {
		oldKernel(t)
		f(t)
	})
}

// oldKernel has this one refuse the option, as kernels before 6.16 do.
func oldKernel(t *testing.T) {
	was := takesRights.Load()
	rightsOption.Store(0x7FFF)
	takesRights.Store(true) // also for sockets that a test makes itself
	t.Cleanup(func() {
		rightsOption.Store(unix.SO_PASSRIGHTS)
		assert.Eventually(t, func() bool { return aside.Load() == 0 }, 10*time.Second, time.Millisecond)
		takesRights.Store(was)
	})
}

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
	g := comesBy(t, i.Address())
	g.says(t, g.opening.append(nil), nil)
	g.challenged(t)
	assert.NotZero(t, g.challenge.flags&wantReach)
	r := g.response("x")
	r.flags = wantReach // and the probe is not where the response says
	g.says(t, r.append(nil), nil)
	h, fd, err := readAnswer(g.UnixConn)
	require.NoError(t, err)
	unix.Close(fd)
	assert.Zero(t, h.flags&canRead)
	assert.True(t, try(os.Getpid(), h.address, h.probe[:]), "its own is")
	assert.False(t, try(os.Getpid(), h.address+1, h.probe[:]))
	assert.False(t, try(0, h.address, h.probe[:]))
	_, err = g.Write([]byte{canRead}) // a lie changes nothing
	require.NoError(t, err)
	q, err := i.Take(t.Context())
	require.NoError(t, err)
	defer q.Abort()
	bufferedOnly(t, q)
}

func bufferedOnly(t *testing.T, q rdma.QueuePair) {
	t.Helper()
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
	assert.Error(t, allowed(overflow(), []int{overflow()}))
	assert.NoError(t, device{}.Reaches(rdma.Peer{SameHost: true}))
	assert.Error(t, device{}.Reaches(rdma.Peer{}))
}

// TestReachIsAskedFor: neither end tells where anything lies in its memory, nor looks
// into the other's, unless both programs want RDMA.
func TestReachIsAskedFor(t *testing.T) {
	for _, v := range []struct{ dials, listens bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprint(v.dials, v.listens), func(t *testing.T) {
			here, there := stepConfig, stepConfig
			here.ZeroCopy, there.ZeroCopy = v.dials, v.listens
			p, err := listen(there)
			require.NoError(t, err)
			defer p.Close()
			said := relayed(t, p, func(dials *net.UnixConn, token [16]byte) (*QueuePair, error) {
				return join(dials, rdma.Address{Token: token}, here, []byte("hello"), settle("re: hello"))
			})
			both := v.dials && v.listens
			for _, q := range said.ends {
				assert.Equal(t, !both, q.Limits().BufferedOnly)
				if !both {
					bufferedOnly(t, q)
				}
				q.Abort()
			}
			nowhere := make([]byte, 8+probeLen)
			response, answer := said.dials[openingLen+proofLen+1:], said.listens[challengeLen+1:]
			assert.Equal(t, !both, bytes.Equal(nowhere, response[:len(nowhere)]), "the response says where")
			assert.Equal(t, !both, bytes.Equal(nowhere, answer[:len(nowhere)]), "the answer says where")
		})
	}
}

// TestReachIsForOurOwnUser alone, whoever else may be the peer.
func TestReachIsForOurOwnUser(t *testing.T) {
	assert.True(t, reachable(os.Getpid(), os.Geteuid()))
	assert.False(t, reachable(os.Getpid(), os.Geteuid()+1))
	assert.False(t, reachable(0, os.Geteuid()))
	p := newPlace(t)
	assert.True(t, p.wantsReach(os.Getpid(), os.Geteuid()))
	assert.False(t, p.wantsReach(os.Getpid(), os.Geteuid()+1))
	p.cfg.ZeroCopy = false
	assert.False(t, p.wantsReach(os.Getpid(), os.Geteuid()))
}

// TestByteBehindItsTime: a machine that has stood still finds that the time of a
// byte is over before it finds the byte.
func TestByteBehindItsTime(t *testing.T) {
	p, err := listen(stepConfig)
	require.NoError(t, err)
	defer p.Close()
	dials, listens := socketPair(t)
	token := [16]byte{1}
	joined := make(chan *QueuePair, 1)
	go func() {
		q, err := join(dials, rdma.Address{Token: token}, stepConfig, []byte("hello"), settle("re: hello"))
		assert.NoError(t, err)
		joined <- q
	}()
	o, err := readOpening(listens)
	require.NoError(t, err)
	pid, uid, err := credentials(listens, nil)
	require.NoError(t, err)
	r, err := p.challenge(listens, token, &o, true)
	require.NoError(t, err)
	listens.SetReadDeadline(past)
	q, err := p.admit(listens, token, &r, pid, uid, func([]byte) ([]byte, int, error) { return []byte("re: hello"), 7, nil })
	require.NoError(t, err)
	defer q.Abort()
	defer (<-joined).Abort()
}
