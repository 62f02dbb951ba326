//go:build linux

package shm

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// relay is what the ends of a channel have said to open it, and the ends.
type relay struct {
	dials, listens []byte
	ends           [2]rdma.QueuePair
}

// relayed has dial open a channel with an invitation of the place through a relay, which
// passes on what either end says, and descriptors.
func relayed(t testing.TB, p *place, dial func(conn *net.UnixConn, token [16]byte) (*QueuePair, error)) (said relay) {
	t.Helper()
	dials, relay1 := socketPair(t)
	relay2, listens := socketPair(t)
	var relaying sync.WaitGroup
	pass := func(from, to *net.UnixConn, said *[]byte) {
		b, oob := make([]byte, 1024), make([]byte, 1024)
		for {
			n, k, _, _, err := from.ReadMsgUnix(b, oob)
			if err != nil || n == 0 {
				return
			}
			to.WriteMsgUnix(b[:n], oob[:k], nil)
			messages, _ := unix.ParseSocketControlMessage(oob[:k])
			for i := range messages {
				files, _ := unix.ParseUnixRights(&messages[i])
				for _, file := range files {
					unix.Close(file)
				}
			}
			*said = append(*said, b[:n]...)
		}
	}
	relaying.Go(func() { pass(relay1, relay2, &said.dials) })
	relaying.Go(func() { pass(relay2, relay1, &said.listens) })
	i := fuzzInvite(t, p)
	pid, uid, err := credentials(listens, nil)
	require.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if !p.join(listens, pid, uid) {
			listens.Close()
		}
	})
	q, err := dial(dials, fuzzToken)
	require.NoError(t, err)
	accepting.Wait()
	taken, err := i.Take(t.Context())
	require.NoError(t, err)
	relay1.CloseRead()
	relay2.CloseRead()
	relaying.Wait()
	relay1.Close()
	relay2.Close()
	said.ends = [2]rdma.QueuePair{q, taken}
	return said
}

// recordedJoin opens a channel and returns what either end has said for it.
func recordedJoin(t testing.TB, p *place) (dials, listens []byte) {
	t.Helper()
	said := relayed(t, p, func(conn *net.UnixConn, token [16]byte) (*QueuePair, error) {
		return join(conn, rdma.Address{Token: token}, stepConfig, []byte("hello"), settle("re: hello"))
	})
	for _, q := range said.ends {
		q.Abort()
	}
	return said.dials, said.listens
}

var fuzzToken = [16]byte{1, 2, 3}

// fuzzInvite invites whoever has fuzzToken.
func fuzzInvite(t testing.TB, p *place) *invitation {
	t.Helper()
	made, err := p.Invite(rdma.Peer{}, func(private []byte) ([]byte, int, error) {
		if len(private) == 0 {
			return nil, 0, errors.New("it says nothing")
		}
		return append([]byte("re: "), private[:min(len(private), 200)]...), 7, nil
	})
	require.NoError(t, err)
	i := made.(*invitation)
	p.forget(nameOf(i.token))
	p.mu.Lock()
	defer p.mu.Unlock()
	i.token = fuzzToken
	p.invited[nameOf(fuzzToken)] = i
	return i
}

// openFiles counts this process's descriptors.
func openFiles(t testing.TB) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// FuzzOpening takes any bytes, and any descriptors with them, as what a process
// says that comes to a place. No descriptor is taken, and the answers are some.
func FuzzOpening(f *testing.F) {
	p, err := listen(stepConfig)
	require.NoError(f, err)
	f.Cleanup(func() { p.Close() })
	said, _ := recordedJoin(f, p)
	opening, response := said[:openingLen], said[openingLen:]
	for _, how := range []byte{0, 1, 2, 0x10, 0x11, 0x21, 0x40, 0x80} {
		f.Add(how, opening, response)
	}
	f.Add(byte(0), opening[:openingLen-1], []byte(nil))
	f.Add(byte(0), []byte(magic), []byte(nil))
	f.Add(byte(0), opening, response[:responseLen-1])
	// The lowest bits of how are the descriptors, 0x30 with what they come, 0x40: an old
	// kernel, 0x80: the proof is left as it is.
	f.Fuzz(func(t *testing.T, how byte, opening, response []byte) {
		if len(opening)+len(response) > 4096 {
			return
		}
		if how&0x40 != 0 {
			oldKernel(t)
		}
		before := openFiles(t)
		i := fuzzInvite(t, p)
		x, y := socketPair(t)
		require.NoError(t, setRights(y, false)) // as an accepted one
		g := newGuest(x, fuzzToken)
		pid, uid, err := credentials(y, nil)
		require.NoError(t, err)
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			if !p.join(y, pid, uid) {
				closeAside(y)
			}
		}()
		other, err := os.Open(os.DevNull)
		require.NoError(t, err)
		says := func(b []byte, bit byte) {
			var rights []byte
			if how&bit != 0 && len(b) > 0 {
				rights = unix.UnixRights(slices.Repeat([]int{int(other.Fd())}, int(how&15))...)
			}
			if _, _, err := x.WriteMsgUnix(b, rights, nil); err != nil {
				x.Write(b)
			}
		}
		says(opening, 0x10)
		if len(opening) == openingLen {
			copy(g.opening.name[:], opening[len(magic):])
			copy(g.opening.nonce[:], opening[len(magic)+nameLen:])
			if c, err := readChallenge(x); err == nil {
				g.challenge = c
				if r := g.response(""); how&0x80 == 0 && len(response) >= proofLen {
					response = append(r.proof[:], response[proofLen:]...)
				}
			}
		}
		says(response, 0x20)
		x.CloseWrite()
		<-joined
		i.Withdraw()
		if h, fd, err := readAnswer(x); err == nil {
			unix.Close(fd)
			if how&0x80 != 0 {
				t.Fatalf("it is answered, and has not proved itself: %+v", h)
			}
		}
		x.Close()
		other.Close()
		closesEnd(t)
		if now := openFiles(t); now > before {
			t.Fatalf("%d descriptors were %d", now, before)
		}
	})
}

// closesEnd waits for what is closed in the background.
func closesEnd(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return aside.Load() == 0 }, 10*time.Second, 100*time.Microsecond)
}

// FuzzAnswer takes any bytes, and any descriptors with them, as what a place says.
func FuzzAnswer(f *testing.F) {
	p, err := listen(stepConfig)
	require.NoError(f, err)
	f.Cleanup(func() { p.Close() })
	_, said := recordedJoin(f, p)
	first, second := said[:challengeLen], said[challengeLen:]
	for _, how := range []byte{0, 1, 2, 3, 0x11, 0x40, 0x41, 0x81, 0x21} {
		f.Add(how, first, second)
	}
	f.Add(byte(1), first, second[:len(second)-1])
	f.Add(byte(1), first, second[:answerLen-1])
	f.Add(byte(0), first[:challengeLen-1], []byte(nil))
	refuses := challenge{flags: refused, text: []byte("the token is not good")}
	f.Add(byte(0), refuses.append(nil), []byte(nil))
	later := answer{flags: refused, private: []byte("as you like")}
	f.Add(byte(0), first, later.append(nil))
	// The lowest bits of how are the descriptors, the first a memory file; 0x10: they
	// come with the challenge; 0x20: and are no memory files; 0x40: an old kernel; 0x80:
	// the proof is left as it is.
	f.Fuzz(func(t *testing.T, how byte, first, second []byte) {
		if len(first)+len(second) > 4096 {
			return
		}
		if how&0x40 != 0 {
			oldKernel(t)
		}
		before := openFiles(t)
		x, y := socketPair(t)
		require.NoError(t, setRights(x, false))              // as Dial does
		x.SetDeadline(time.Now().Add(20 * time.Millisecond)) // a challenge may be one cut short
		var answering sync.WaitGroup
		answering.Go(func() {
			a, area, err := newArea()
			if !assert.NoError(t, err) {
				return
			}
			a.unmap()
			defer area.Close()
			other, err := os.Open(os.DevNull)
			if !assert.NoError(t, err) {
				return
			}
			defer other.Close()
			says := func(b []byte, files bool) {
				var rights []byte
				if files && len(b) > 0 && how&15 > 0 {
					fds := slices.Repeat([]int{int(other.Fd())}, int(how&15))
					if how&0x20 == 0 {
						fds[0] = int(area.Fd())
					}
					rights = unix.UnixRights(fds...)
				}
				if _, _, err := y.WriteMsgUnix(b, rights, nil); err != nil {
					y.Write(b)
				}
			}
			defer y.CloseWrite()
			o, err := readOpening(y)
			if err != nil {
				return
			}
			if how&0x80 == 0 && len(first) >= challengeLen {
				var c challenge
				copy(c.nonce[:], first[len(magic)+1:])
				good := proof(fuzzToken, listens, o.nonce, c.nonce)
				first = slices.Concat(first[:len(magic)+1+nonceLen], good, first[challengeLen-2:])
			}
			says(first, how&0x10 != 0)
			r, err := readResponse(y)
			if err != nil {
				return
			}
			if how&0x80 != 0 {
				t.Errorf("it responds to a place that has not proved itself: %+v", r)
			}
			says(second, how&0x10 == 0)
		})
		q, err := join(x, rdma.Address{Token: fuzzToken}, stepConfig, []byte("hello"), func(reply []byte) (int, error) {
			if len(reply) == 0 {
				return 0, errors.New("it says nothing")
			}
			return 5, nil
		})
		if err != nil {
			closeAside(x)
		} else {
			x.SetDeadline(time.Time{})
		}
		answering.Wait()
		if err == nil {
			var wcs [1]rdma.Completion
			_, err := q.Wait(wcs[:])
			checkEndOfFuzz(t, err) // the peer has gone
			q.Abort()
		}
		y.Close()
		closesEnd(t)
		if now := openFiles(t); now > before {
			t.Fatalf("%d descriptors were %d", now, before)
		}
	})
}
