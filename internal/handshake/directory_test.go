package handshake

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// TestServices: an address of the server that the kernel has translated is seen through if it is one of a
// service, the client's is its own, and the ends share a directory.
func TestServices(t *testing.T) {
	var (
		client  = netip.MustParseAddrPort("10.211.0.1:40000")
		service = netip.MustParseAddrPort("10.96.0.10:80")
		server  = netip.MustParseAddrPort("10.211.0.2:7000")
	)
	h := &Incoming{Server: &Server{cfg: Config{Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}}}
	for _, v := range []struct {
		name           string
		client, server netip.AddrPort // as the client sees them
		inDir          bool
		is             bool
	}{
		{"a service", client, service, true, true},
		{"in IPv6's notation", client, netip.MustParseAddrPort("[::ffff:10.96.0.10]:80"), true, true},
		{"no directory in common", client, service, false, false},
		{"a relay at a service's address", netip.MustParseAddrPort("10.211.0.9:40000"), service, true, false},
		{"another port", netip.MustParseAddrPort("10.211.0.1:40001"), service, true, false},
		{"no service", client, netip.MustParseAddrPort("10.212.0.1:80"), true, false},
		{"no addresses", netip.AddrPort{}, netip.AddrPort{}, true, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			offers := wire.Offers{Client: v.client, Server: v.server}
			assert.Equal(t, v.is, h.translated(&offers, &rdma.Peer{Local: server, Remote: client, InDir: v.inDir}))
		})
	}
}

// TestClaimInVain: a connection that claims fit in vain waits for no more than twice HoldTime, whatever
// the times of the checks.
func TestClaimInVain(t *testing.T) {
	h := &Incoming{held: new(hearing)}
	var waits time.Duration
	for wait := recheckFirst; waits < shmdir.HoldTime; wait = h.recheckAfter(wait) {
		waits += wait
	}
	assert.LessOrEqual(t, waits, 2*shmdir.HoldTime)
}
