//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// nowhere is where a place was that is closed.
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

// Where nobody listens any more one learns so, and not by waiting.
func TestNobodyListens(t *testing.T) {
	to := nowhere(t)
	ctx, cancel := context.WithTimeout(context.Background(), mostConnecting)
	defer cancel()
	_, err := device{}.Dial(ctx, to, config, []byte("hello"), func([]byte) (int, error) { return 1, nil })
	if err == nil || !strings.Contains(err.Error(), "refuse") {
		t.Errorf("Dial = %v", err)
	}
}

// A peer that takes too long is not waited for.
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
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = device{}.Dial(ctx, to, config, []byte("hello"), func([]byte) (int, error) { return 1, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial = %v", err)
	}
}
