//go:build linux

package shm

import (
	"net"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/test/watchdog"
)

// says says b with n descriptors, the first of which is file unless that is negative, as
// far as the kernel lets it.
func (g *guest) says(b []byte, n, file int) {
	var rights []byte
	if n > 0 && len(b) > 0 {
		other, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(other)
		fds := slices.Repeat([]int{other}, n)
		if file >= 0 {
			fds[0] = file
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := g.WriteMsgUnix(b, rights, nil); err != nil {
		g.Write(b)
	}
}

// FuzzMeeting takes any bytes, and any descriptors with them, as what a process says that
// comes to an offer. What has no proof is told nothing. No descriptor is taken.
func FuzzMeeting(f *testing.F) {
	good := token{}.meeting(&sight{})
	for _, how := range []byte{0, 1, 2, 0x11, 0x40, 0x41, 0x51, 0x80, 0x81} {
		f.Add(how, good, []byte(nil))
	}
	f.Add(byte(0), good, []byte("more"))
	f.Add(byte(0x11), good, []byte("more"))
	f.Add(byte(0x51), good, []byte("more"))
	f.Add(byte(0), good[:meetingLen-1], []byte(nil))
	f.Add(byte(0), good[:1], good[1:])
	wants := sight{flags: canRead, address: 1}
	f.Add(byte(0), token{}.meeting(&wants), []byte(nil))
	// The lowest bits of how are the descriptors; 0x10: they come with the second message;
	// 0x40: an old kernel; 0x80: the proof is left as it is.
	f.Fuzz(func(t *testing.T, how byte, first, second []byte) {
		defer watchdog.Start()()
		if len(first)+len(second) > 4096 {
			return
		}
		if how&0x40 != 0 {
			oldKernel(t)
		}
		before := descriptors(t)
		o := newOffer(t, "", stepConfig)
		g := guestOf(t, o)
		proved := how&0x80 == 0 && len(first) >= meetingLen
		if proved {
			first = slices.Concat(first[:len(magic)], g.token.proof(serves), first[len(magic)+proofLen:])
		}
		if n := int(how & 15); how&0x10 == 0 {
			g.says(first, n, -1)
			g.says(second, 0, -1)
		} else {
			g.says(first, 0, -1)
			g.says(second, n, -1)
		}
		require.NoError(t, g.CloseWrite())
		q, err := o.Take(1)
		if err != nil {
			o.Drop()
		}
		var b [1]byte
		n, _ := g.Read(b[:])
		if n > 0 && !proved {
			t.Fatal("it has told one that has not proved itself")
		}
		if err == nil {
			_, err := q.Wait(make([]rdma.Completion, 1))
			checkEndOfFuzz(t, err) // the peer has gone
			q.Abort()
		}
		g.Close()
		closesEnd(t)
		if now := descriptors(t); now > before {
			t.Fatalf("%d descriptors were %d", now, before)
		}
	})
}

// FuzzDecision takes any bytes, and any descriptors with them, as what a client says to
// which a place has come. No descriptor is left open, and none is taken from a client that
// has not proved itself.
func FuzzDecision(f *testing.F) {
	p := newPlace(f)
	good := token{}.decision(0)
	for _, how := range []byte{0, 1, 2, 0x11, 0x21, 0x40, 0x41, 0x42, 0x80, 0x81} {
		f.Add(how, good, []byte(nil))
	}
	f.Add(byte(1), good[:decisionLen-1], []byte(nil))
	f.Add(byte(1), good, []byte{1, 2, 3})
	f.Add(byte(0x11), good, []byte{1, 2, 3})
	f.Add(byte(1), token{}.decision(canRead), []byte(nil))
	// The lowest bits of how are the descriptors, the first a memory file; 0x10: they come
	// with the second message; 0x20: and are no memory files; 0x40: an old kernel; 0x80: the
	// proof is left as it is.
	f.Fuzz(func(t *testing.T, how byte, first, second []byte) {
		defer watchdog.Start()()
		if len(first)+len(second) > 4096 {
			return
		}
		if how&0x40 != 0 {
			oldKernel(t)
		}
		before := descriptors(t)
		ticket := newTicket()
		k, socket := halves(ticket)
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		require.NoError(t, err)
		w, err := p.Meet(rdma.Peer{}, ticket, 7)
		require.NoError(t, err)
		conn, err := ln.AcceptUnix()
		require.NoError(t, err)
		g := &guest{conn, k}
		proved := how&0x80 == 0 && len(first) >= decisionLen
		if proved {
			first = append(k.proof(decides), first[proofLen:]...)
		}
		a, file, err := newArea()
		require.NoError(t, err)
		a.unmap()
		if how&0x20 != 0 {
			unix.Close(file)
			file = -1
		}
		if n := int(how & 15); how&0x10 == 0 {
			g.says(first, n, file)
			g.says(second, 0, -1)
		} else {
			g.says(first, 0, -1)
			g.says(second, n, file)
		}
		if file >= 0 {
			unix.Close(file)
		}
		require.NoError(t, g.CloseWrite())
		q, err := w.Take(t.Context())
		if err == nil {
			if !proved {
				t.Fatal("it has taken one that has not proved itself")
			}
			_, err := q.Wait(make([]rdma.Completion, 1))
			checkEndOfFuzz(t, err) // the peer has gone
			q.Abort()
		}
		g.Close()
		ln.Close()
		closesEnd(t)
		if now := descriptors(t); now > before {
			t.Fatalf("%d descriptors were %d", now, before)
		}
	})
}
