//go:build linux && cgo

package verbs

import (
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

// addressVariable names the address of an RDMA device on this machine, between
// two ends of which the tests run.
const addressVariable = "VERBS_ADDRESS"

// hardware returns the address, or skips the test and says what is missing.
func hardware(t testing.TB) netip.Addr {
	t.Helper()
	text := os.Getenv(addressVariable)
	if text == "" {
		t.Skip("no RDMA device is named: " + addressVariable + " has its IP address; test/lab sets it")
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

const mostConnecting = 5 * time.Second

var config = rdma.StepConfig{IRD: 16, Buffers: 64, BufSize: maxMessage, Timeout: mostConnecting}

// pair connects two ends over the device.
func pair(t testing.TB, at netip.Addr, cfg rdma.StepConfig) (a, b rdma.QueuePair) {
	t.Helper()
	place, err := device{}.Listen(cfg)
	must(t, err)
	defer place.Close()
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

func Benchmark(b *testing.B) {
	at := hardware(b)
	cfg := config
	cfg.Buffers = 256
	rdmatest.Benchmark(b, func(b *testing.B) (x, y rdma.QueuePair) { return pair(b, at, cfg) })
}

// What is not the address of an RDMA device is told from what is.
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

// A peer without a good token is sent away, and is told why.
func TestToken(t *testing.T) {
	at := hardware(t)
	place, err := device{}.Listen(config)
	must(t, err)
	defer place.Close()
	ends := netip.AddrPortFrom(at, 1)
	invitation, err := place.Invite(rdma.Peer{Local: ends, Remote: ends}, func([]byte) ([]byte, int, error) {
		t.Error("a stranger is answered")
		return nil, 0, nil
	})
	must(t, err)
	defer invitation.Withdraw()
	to := invitation.Address()
	to.Local, to.Remote = at, at
	to.Token[0]++
	ctx, cancel := context.WithTimeout(context.Background(), mostConnecting)
	defer cancel()
	_, err = device{}.Dial(ctx, to, config, []byte("hello"), func([]byte) (int, error) { return 1, nil })
	if err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("Dial = %v", err)
	}
}
