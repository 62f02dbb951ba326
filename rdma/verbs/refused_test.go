//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// nowhere returns the address of an acceptor that was closed.
func nowhere(t *testing.T) rdma.Address {
	t.Helper()
	at := hardware(t)
	place, err := device{}.Listen(config)
	must(t, err)
	invitation, err := place.Invite(rdma.Peer{Local: netip.AddrPortFrom(at, 1), Remote: netip.AddrPortFrom(at, 1)}, nil)
	must(t, err)
	to := invitation.Address()
	to.Local, to.Remote = at, at
	must(t, place.Close())
	return to
}

// Dialling an address where no process listens any more fails at once.
func TestNobodyListens(t *testing.T) {
	to := nowhere(t)
	ctx, cancel := context.WithTimeout(context.Background(), mostConnecting)
	defer cancel()
	_, err := device{}.Dial(ctx, to, config, []byte("hello"), func([]byte) (int, error) { return 1, nil })
	if err == nil || !strings.Contains(err.Error(), "refuse") {
		t.Errorf("Dial = %v", err)
	}
}

// Dial does not wait for a peer that takes too long.
func TestDialTakesTooLong(t *testing.T) {
	at := hardware(t)
	place, err := device{}.Listen(config)
	must(t, err)
	defer place.Close()
	over := make(chan struct{})
	defer close(over)
	invitation, err := place.Invite(rdma.Peer{Local: netip.AddrPortFrom(at, 1), Remote: netip.AddrPortFrom(at, 1)}, func([]byte) ([]byte, int, error) {
		<-over
		return nil, 0, errors.New("too late")
	})
	must(t, err)
	defer invitation.Withdraw()
	to := invitation.Address()
	to.Local, to.Remote = at, at
	dialInVain(t, to)
	requestsEnd(t)
}

// If packets are dropped, Dial does not wait longer than it was told to either: siw connects a TCP
// socket of its own, in the kernel, which keeps trying.
func TestNobodyAnswers(t *testing.T) {
	at := hardware(t)
	a, b := pair(t, at, config)
	rnic := a.(*QueuePair).rnic
	must(t, errors.Join(a.Abort(), b.Abort()))
	if !rnic {
		t.Skip("missing: an iWARP device; another connects no TCP socket")
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: at.As4()}))
	must(t, unix.Listen(fd, 0)) // it never accepts, and has room for one connection
	name, err := unix.Getsockname(fd)
	must(t, err)
	to := nowhere(t)
	to.Port = uint16(name.(*unix.SockaddrInet4).Port)
	for full := false; !full; {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(at, to.Port).String(), 500*time.Millisecond)
		if full = err != nil; !full {
			defer c.Close()
		}
	}

	dialInVain(t, to)
	if len(requests) != 1 {
		t.Errorf("%d requests are with the kernel, want one", len(requests))
	}
	must(t, unix.Close(fd)) // a retransmission is refused
	requestsEnd(t)
}

// dialInVain dials for less time than it would take.
func dialInVain(t *testing.T, to rdma.Address) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := device{}.Dial(ctx, to, config, []byte("hello"), func([]byte) (int, error) { return 1, nil })
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > mostConnecting {
		t.Errorf("Dial = %v, after %v", err, took)
	}
}

// requestsEnd waits until the kernel holds no request.
func requestsEnd(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(requests) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a request that was left behind does not end")
		}
	}
}
