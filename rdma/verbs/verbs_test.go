//go:build linux && cgo

package verbs

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// addressVariable names the address of an RDMA device on this machine. The tests run between two ends
// at this address.
const addressVariable = "VERBS_ADDRESS"

// hardware returns the address, or skips the test and says what is missing.
func hardware(t testing.TB) netip.Addr {
	t.Helper()
	text := os.Getenv(addressVariable)
	if text == "" {
		t.Skip("missing: " + addressVariable + ", the IP address of an RDMA device; test/lab sets it")
	}
	at, err := netip.ParseAddr(text)
	must(t, err)
	must(t, device{}.Probe())
	return at
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const mostConnecting = time.Minute

var config = rdma.ChannelConfig{IRD: 16, Buffers: 64, BufSize: maxMessage}

// pair connects two ends over the device.
func pair(t testing.TB, at netip.Addr, cfg rdma.ChannelConfig) (a, b rdma.QueuePair) {
	t.Helper()
	place, err := device{}.Listen(cfg)
	must(t, err)
	defer place.Close()
	return meet(t, place, at, cfg)
}

// meet connects two ends, one of which the acceptor accepts.
func meet(t testing.TB, place rdma.InviteListener, at netip.Addr, cfg rdma.ChannelConfig) (a, b rdma.QueuePair) {
	t.Helper()
	ends := netip.AddrPortFrom(at, 1)
	invitation, err := place.Invite(rdma.Peer{Local: ends, Remote: ends}, func(said []byte) ([]byte, int, error) {
		if !strings.HasPrefix(string(said), "hello") {
			return nil, 0, errors.New("no hello")
		}
		return []byte("answer"), cfg.IRD, nil
	})
	must(t, err)
	defer invitation.Withdraw()
	ctx, cancel := context.WithTimeout(context.Background(), mostConnecting)
	defer cancel()
	to := invitation.Address()
	to.Local, to.Remote = at, at
	a, err = device{}.Dial(ctx, to, cfg, []byte("hello"), func(reply []byte) (int, error) {
		if !strings.HasPrefix(string(reply), "answer") {
			return 0, errors.New("no answer")
		}
		return cfg.IRD, nil
	})
	must(t, err)
	b, err = invitation.Take(ctx)
	if err != nil {
		a.Abort()
		t.Fatal(err)
	}
	return a, b
}

func TestConformance(t *testing.T) {
	at := hardware(t)
	rdmatest.Run(t, func(t *testing.T) (a, b rdma.QueuePair) { return pair(t, at, config) })
}

func TestAllocsConformance(t *testing.T) {
	at := hardware(t)
	rdmatest.RunAllocs(t, func(t *testing.T) (a, b rdma.QueuePair) { return pair(t, at, config) })
}

func Benchmark(b *testing.B) {
	at := hardware(b)
	cfg := config
	cfg.Buffers = 256
	rdmatest.Benchmark(b, func(b *testing.B) (x, y rdma.QueuePair) { return pair(b, at, cfg) })
}

// An address that is not that of an RDMA device is recognised.
func TestReaches(t *testing.T) {
	at := hardware(t)
	peer := func(a netip.Addr) rdma.Peer {
		return rdma.Peer{Local: netip.AddrPortFrom(a, 1), Remote: netip.AddrPortFrom(at, 1)}
	}
	must(t, device{}.Reaches(peer(at)))
	if err := (device{}).Reaches(peer(netip.MustParseAddr("127.0.0.1"))); err == nil || !strings.Contains(err.Error(), "not the address of an RDMA device") {
		t.Errorf("127.0.0.1: %v", err)
	}
	if err := (device{}).Reaches(rdma.Peer{}); err == nil {
		t.Error("a connection without addresses")
	}
}

// A peer that violates a rule while connecting is rejected and told why; the acceptor continues.
func TestToken(t *testing.T) {
	at := hardware(t)
	place, err := device{}.Listen(config)
	must(t, err)
	defer place.Close()
	ends := netip.AddrPortFrom(at, 1)
	ctx, cancel := context.WithTimeout(context.Background(), mostConnecting)
	defer cancel()
	yes := func([]byte) (int, error) { return 1, nil }
	dial := func(a rdma.Address, say string, settle func([]byte) (int, error)) (*QueuePair, error) {
		a.Local, a.Remote = at, at
		return join(ctx, a, config, []byte(say), settle)
	}
	for _, row := range []struct {
		name  string
		dial  func(rdma.Address) (*QueuePair, error)
		error string
		taken bool // the invitation was used up
	}{
		{"another token", func(a rdma.Address) (*QueuePair, error) {
			a.Token[0]++
			return dial(a, "hello", yes)
		}, "invalid or expired connection token", false},
		{"half a token", func(a rdma.Address) (q *QueuePair, err error) {
			e, err := acquire()
			must(t, err)
			defer e.release()
			a.Local, a.Remote = at, at
			err = withFreePort(func() error {
				q, err = e.connect(ctx, a, config, bytes.Clone(a.Token[:8]), yes)
				return err
			})
			return q, err
		}, "token", false}, // InfiniBand pads it
		{"a token twice", func(a rdma.Address) (*QueuePair, error) {
			q, err := dial(a, "hello", yes)
			must(t, err)
			defer q.Abort()
			return dial(a, "hello", yes)
		}, "invalid or expired connection token", true},
		{"what the place refuses", func(a rdma.Address) (*QueuePair, error) {
			return dial(a, "refuse me", yes)
		}, `connection rejected by peer: "server cannot open the channel"`, true},
		{"a reply that is not wanted", func(a rdma.Address) (*QueuePair, error) {
			return dial(a, "hello", func(reply []byte) (int, error) { return 0, errors.New("not " + printable(reply)) })
		}, "not answer", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			invitation, err := place.Invite(rdma.Peer{Local: ends, Remote: ends}, func(said []byte) ([]byte, int, error) {
				if printable(said) == "refuse me" {
					return nil, 0, errors.New("as you like")
				}
				return []byte("answer"), 1, nil
			})
			must(t, err)
			defer invitation.Withdraw()
			q, err := row.dial(invitation.Address())
			if err == nil {
				q.Abort()
			}
			if err == nil || !strings.Contains(err.Error(), row.error) {
				t.Errorf("Dial = %v", err)
			}
			if !row.taken { // the right peer may still come
				q, err := dial(invitation.Address(), "hello", yes)
				must(t, err)
				q.Abort()
			}
		})
	}
}

// TestApart runs the suite with the two ends in two processes.
func TestApart(t *testing.T) {
	at := hardware(t)
	a, b := rdmatest.DialHalves(device{}, config, at)
	rdmatest.RunApart(t, a, b)
}
