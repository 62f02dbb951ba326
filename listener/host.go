package listener

import (
	"sync"

	"github.com/gosdp/gosdp/wire"
)

// host tells this host from all others: id is one string in all programs that
// can share memory, and pid one in those that see each other's processes. Both
// are empty where that cannot be told.
type host struct{ id, pid string }

var thisHost = sync.OnceValue(readHost)

// is reports that a peer's HostID was made on this host. Of an unknown host that
// is never so.
func (h host) is(peer wire.HostID) bool { return h.id != "" && peer.SameHost(h.id) }

// HostID returns what tells a peer, under a salt that is random and new, whether
// it is on this host; false where we do not know which host this is. Safe for
// concurrent use.
func HostID(salt [16]byte) (wire.HostID, bool) {
	h := thisHost()
	if h.id == "" {
		return wire.HostID{}, false
	}
	return wire.NewHostID(salt, h.id, h.pid), true
}
