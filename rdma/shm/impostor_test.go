//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
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

// TestDialIsNotFooled: whatever an end says that answers in a place's stead, Dial fails,
// holds no descriptor of it, and has said nothing but the opening to one that has not
// proved itself.
func TestDialIsNotFooled(t *testing.T) {
	for _, v := range []struct {
		name          string
		challenge     func(b []byte) []byte
		answer        func(b []byte) []byte
		withChallenge []byte // see filesOf
		withAnswer    []byte
		silent        bool // it says no challenge
		mute          bool // it says no answer
		proved        bool
		error         string
	}{
		{name: "silence", silent: true, error: "i/o timeout"},
		{name: "no magic", challenge: func(b []byte) []byte { b[0]++; return b }, error: "the challenge is not one"},
		{name: "half a challenge", challenge: func(b []byte) []byte { return b[:challengeLen-1] }, error: "has closed the channel"},
		{name: "another proof", challenge: func(b []byte) []byte { b[challengeLen-3]++; return b }, error: "does not have the token"},
		{name: "no proof", challenge: func(b []byte) []byte { clear(b[len(magic)+1+nonceLen:]); return b }, error: "does not have the token"},
		{name: "another nonce", challenge: func(b []byte) []byte { b[len(magic)+1]++; return b }, error: "does not have the token"},
		{name: "a refusal", challenge: func([]byte) []byte {
			c := challenge{flags: refused, text: []byte("as you like")}
			return c.append(nil)
		}, error: `the peer refuses: "as you like"`},
		{name: "a long text", challenge: func(b []byte) []byte {
			binary.NativeEndian.PutUint16(b[challengeLen-2:], 256)
			return append(b, make([]byte, 256)...)
		}, error: "at most 255"},
		{name: "a descriptor with the challenge", withChallenge: []byte{'m'}, error: "none is wanted"},

		{name: "silence behind the proof", mute: true, proved: true, error: "i/o timeout"},
		{name: "half an answer", answer: func(b []byte) []byte { return b[:answerLen-1] }, withAnswer: []byte{'m'}, proved: true, error: "has closed the channel"},
		{name: "a long answer", answer: func(b []byte) []byte {
			binary.NativeEndian.PutUint16(b[answerLen-2:], 256)
			return b
		}, withAnswer: []byte{'m'}, proved: true, error: "at most 255"},
		{name: "a later refusal", answer: func([]byte) []byte {
			h := answer{flags: refused, private: []byte("as you like")}
			return h.append(nil)
		}, proved: true, error: `the peer refuses: "as you like"`},
		{name: "no descriptor", proved: true, error: "no descriptor came"},
		{name: "two descriptors", withAnswer: []byte("mm"), proved: true, error: "more than one descriptor"},
		{name: "many descriptors", withAnswer: []byte("mmmmmmmmmmmm"), proved: true, error: "more than one descriptor"},
		{name: "a pipe", withAnswer: []byte{'p'}, proved: true, error: "is no memory file"},
		{name: "more behind the answer", answer: func(b []byte) []byte { return append(b, 'm') }, withAnswer: []byte{'m'}, proved: true, error: "more has come than the answer"},
		{name: "a file that can be cut short", withAnswer: []byte{'s'}, proved: true, error: "has the seals"},
		{name: "a file of another layout", withAnswer: []byte{'l'}, proved: true, error: "has the layout 2, ours is 3"},
	} {
		t.Run(v.name, func(t *testing.T) {
			onEachKernel(t, func(t *testing.T) {
				before := descriptors(t)
				address, ln := impostor(t)
				dialled := make(chan error, 1)
				go func() {
					ctx := t.Context()
					if v.silent || v.mute {
						ctx = soon(t)
					}
					cfg := stepConfig
					q, err := device{}.Dial(ctx, address, cfg, []byte("private"), settle("re: private"))
					if err == nil {
						q.Abort()
					}
					dialled <- err
				}()
				conn, err := ln.AcceptUnix()
				require.NoError(t, err)
				require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
				g := newGuest(conn, address.Token)
				o, err := readOpening(conn)
				require.NoError(t, err)
				assert.Equal(t, nameOf(address.Token), o.name)
				refused := false
				if !v.silent {
					c := challenge{nonce: newNonce()}
					copy(c.proof[:], proof(address.Token, listens, o.nonce, c.nonce))
					b := changed(c.append(nil), v.challenge)
					refused = !g.says(t, b, v.withChallenge)
				}
				if v.proved {
					r, err := readResponse(conn)
					require.NoError(t, err)
					assert.Equal(t, "private", string(r.private))
					if !v.mute {
						h := answer{private: []byte("re: private")}
						g.gives(t, changed(h.append(nil), v.answer), v.withAnswer)
					}
				}
				if !v.silent && !v.mute {
					conn.CloseWrite()
				}
				err = <-dialled
				if refused {
					assert.ErrorContains(t, err, "has closed the channel")
				} else {
					assert.ErrorContains(t, err, v.error)
				}
				more, err := io.ReadAll(conn)
				if err == nil {
					assert.Empty(t, more, "what the dialler has said besides")
				}
				conn.Close()
				ln.Close()
				assert.Eventually(t, func() bool { return descriptors(t) <= before }, 5*time.Second, time.Millisecond)
			})
		})
	}
}

// impostor listens where an address says.
func impostor(t *testing.T) (rdma.Address, *net.UnixListener) {
	t.Helper()
	socket := "sdp-impostor-" + rand.Text()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + socket, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return rdma.Address{Socket: socket, Token: [16]byte([]byte(rand.Text()))}, ln
}

// gives writes b with descriptors that the peer is ready for.
func (g *guest) gives(t *testing.T, b, kinds []byte) {
	t.Helper()
	var fds []int
	files := filesOf(t, kinds)
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := g.WriteMsgUnix(b, rights, nil)
	require.NoError(t, err)
	for _, f := range files {
		f.Close()
	}
}

// TestRelayedOpening: a relay between the ends sees no token, and what it has seen opens
// no second channel.
func TestRelayedOpening(t *testing.T) {
	p := newPlace(t)
	said := relayed(t, p, func(conn *net.UnixConn, token [16]byte) (*QueuePair, error) {
		return join(conn, rdma.Address{Token: token}, stepConfig, []byte("x"), settle("re: x"))
	})
	for _, q := range said.ends {
		q.Abort()
	}
	assert.NotContains(t, string(said.dials), string(fuzzToken[:]))
	assert.NotContains(t, string(said.listens), string(fuzzToken[:]))
	i := fuzzInvite(t, p) // with the same token, even
	defer i.Withdraw()
	g := comesBy(t, i.Address())
	_, err := g.Write(said.dials)
	require.NoError(t, err)
	_, err = readChallenge(g.UnixConn)
	require.NoError(t, err)
	_, _, err = readAnswer(g.UnixConn)
	assert.ErrorContains(t, err, "does not have the token")
	_, err = i.Take(t.Context())
	assert.ErrorIs(t, err, errUnproved)
}

// TestProofIsNotReflected: the place's own proof does not serve a peer.
func TestProofIsNotReflected(t *testing.T) {
	p := newPlace(t)
	i := invite(t, p, rdma.Peer{})
	defer i.Withdraw()
	g := comesBy(t, i.Address())
	g.says(t, g.opening.append(nil), nil)
	g.challenged(t)
	r := response{proof: g.challenge.proof, private: []byte("x")}
	g.says(t, r.append(nil), nil)
	_, err := i.Take(t.Context())
	assert.ErrorIs(t, err, errUnproved)
}

// TestDescriptorsAreRefused by the kernel, if it can, from before a connection is
// accepted until its end, in both directions, except for the memory file.
func TestDescriptorsAreRefused(t *testing.T) {
	p := newPlace(t)
	if takesRights.Load() {
		t.Skip("the kernel has no SO_PASSRIGHTS (Linux 6.16)")
	}
	i := invite(t, p, rdma.Peer{})
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	send := func(conn *net.UnixConn) {
		t.Helper()
		_, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(null.Fd())), nil)
		assert.ErrorIs(t, err, unix.EPERM)
	}
	for range 3 { // some of them are not accepted yet
		send(comesBy(t, i.Address()).UnixConn)
	}
	q, err := device{}.Dial(t.Context(), i.Address(), stepConfig, []byte("x"), settle("re: x"))
	require.NoError(t, err)
	defer q.Abort()
	r, err := i.Take(t.Context())
	require.NoError(t, err)
	defer r.Abort()
	send(q.(*QueuePair).bell.conn)
	send(r.(*QueuePair).bell.conn)
}

// lingering returns a TCP socket whose last close blocks, until release is called.
func lingering(t *testing.T) (socket *os.File, release func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	far, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
	for err == nil {
		_, err = c.Write(make([]byte, 1<<20))
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.(*net.TCPConn).SetLinger(60))
	socket, err = c.(*net.TCPConn).File()
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	return socket, func() { far.(*net.TCPConn).SetLinger(0); far.Close() }
}

// TestClosesThatBlock: on a kernel without SO_PASSRIGHTS peers have closes block. They
// hold up neither a place, nor its Close, nor Dial; and when they are many, no channels
// are opened, at once, until they are through.
func TestClosesThatBlock(t *testing.T) {
	oldKernel(t)
	p := newPlace(t)
	socket, release := lingering(t)
	defer release()
	dial := func() {
		t.Helper()
		i := invite(t, p, rdma.Peer{})
		begin := time.Now()
		a, err := device{}.Dial(t.Context(), i.Address(), stepConfig, []byte("x"), settle("re: x"))
		require.NoError(t, err)
		assert.Less(t, time.Since(begin), joinTime/2)
		b, err := i.Take(t.Context())
		require.NoError(t, err)
		a.Abort()
		b.Abort()
	}
	for range maxJoining {
		g := comesBy(t, rdma.Address{Socket: p.socket})
		_, _, err := g.WriteMsgUnix([]byte(magic), unix.UnixRights(int(socket.Fd())), nil)
		require.NoError(t, err)
		io.ReadAll(g)
	}
	require.Eventually(t, func() bool { return aside.Load() == 0 }, 5*time.Second, time.Millisecond, "a socket that others have is closed at once")
	dial()
	// Nobody else has the socket when the place finds it: it accepts nobody until then.
	held := 0
	for len(p.joining) < cap(p.joining) {
		select {
		case p.joining <- struct{}{}:
			held++
		default:
		}
	}
	comesBy(t, rdma.Address{Socket: p.socket}) // takes the place that was free for the next
	g := comesBy(t, rdma.Address{Socket: p.socket})
	_, _, err := g.WriteMsgUnix([]byte(magic), unix.UnixRights(int(socket.Fd())), nil)
	require.NoError(t, err)
	socket.Close()
	for range held {
		<-p.joining
	}
	io.ReadAll(g)
	require.Eventually(t, func() bool { return blocked.Load() == 1 }, 5*time.Second, time.Millisecond, "it is blocked")
	dial()

	blocked.Add(mostAside - 1) // as if there were many
	defer blocked.Add(1 - mostAside)
	_, err = p.Invite(rdma.Peer{}, nil)
	assert.ErrorIs(t, err, errAside)
	_, err = device{}.Dial(t.Context(), rdma.Address{Socket: p.socket}, stepConfig, nil, nil)
	assert.ErrorIs(t, err, errAside)
	begin := time.Now()
	p.Close()
	assert.Less(t, time.Since(begin), joinTime/2)
	release()
}

// TestDialAtAnImpostor: nor does what an impostor sends hold up a Dial.
func TestDialAtAnImpostor(t *testing.T) {
	oldKernel(t)
	for range 50 {
		if dialsAtAnImpostor(t) {
			return
		}
	}
	t.Fatal("the dialler was never the last to close the descriptor")
}

// dialsAtAnImpostor is one attempt. It reports whether the dialler was the last to close the
// descriptor that it was sent: if the impostor was, it is the impostor that is held up.
func dialsAtAnImpostor(t *testing.T) bool {
	t.Helper()
	socket, release := lingering(t)
	defer release()
	address, ln := impostor(t)
	defer ln.Close()
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		_, err := device{}.Dial(ctx, address, stepConfig, nil, nil)
		done <- err
	}()
	conn, err := ln.AcceptUnix()
	require.NoError(t, err)
	defer conn.Close()
	fd := int(socket.Fd())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		conn.WriteMsgUnix([]byte(magic), unix.UnixRights(fd), nil)
		socket.Close()
	}()
	defer func() { <-sent }()
	defer release()
	select {
	case err := <-done:
		assert.ErrorIs(t, err, errRights)
	case <-time.After(5 * time.Second):
		release()
		assert.Fail(t, "it is held up", "%v", <-done)
		return true
	}
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; time.Sleep(time.Millisecond) {
		if blocked.Load() == 1 {
			return true
		}
	}
	return false
}

// TestUrgentDescriptor: a read passes over an urgent byte, and drops the descriptor that
// comes with it, unless it was told to see it.
func TestUrgentDescriptor(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	f := os.NewFile(uintptr(fds[0]), "victim")
	c, err := net.FileConn(f)
	require.NoError(t, err)
	f.Close()
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	rc, err := c.(*net.UnixConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, rc.Control(func(fd uintptr) { assert.NoError(t, inline(int(fd))) }))
	err = unix.Sendmsg(fds[1], []byte("u"), unix.UnixRights(fds[1]), nil, unix.MSG_OOB)
	if err == unix.EOPNOTSUPP || err == unix.EPERM {
		t.Skipf("this kernel sends no descriptor with an urgent byte: %v", err)
	}
	require.NoError(t, err)
	_, err = unix.Write(fds[1], []byte("x"))
	require.NoError(t, err)
	var b [2]byte
	assert.ErrorIs(t, readBytes(c.(*net.UnixConn), b[:]), errRights)
}
