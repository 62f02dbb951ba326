//go:build linux

package shm

import (
	"os"
	"sync"

	"github.com/gosdp/gosdp/internal/bubble"
)

// Both ends of a connection may be in one process: in tests, and in programs with an embedded
// server. They wake each other directly then. A byte on the socket would wake the goroutine only
// when the runtime next polls the network, which costs several system calls.

// unpaired are the doorbells of this process whose peers are in this process too and have not begun
// the use yet. The keys of the area identify the use.
var unpaired = struct {
	sync.Mutex
	bells map[[2]uint64]*doorbell
}{bells: map[[2]uint64]*doorbell{}}

// pair finds the doorbell at the other end, if the peer pid is this process, or leaves this one to
// be found.
func (b *doorbell) pair(pid int) {
	if pid != os.Getpid() || bubble.Inside() { // a bubble takes waiting for a goroutine outside for a deadlock
		return
	}
	use := b.use()
	unpaired.Lock()
	defer unpaired.Unlock()
	peer := unpaired.bells[use]
	if peer == nil {
		unpaired.bells[use] = b
		return
	}
	delete(unpaired.bells, use)
	b.peer.Store(peer)
	peer.peer.Store(b)
}

// unpair forgets a doorbell that the peer has not found. The area must be mapped.
func (b *doorbell) unpair() {
	use := b.use()
	unpaired.Lock()
	if unpaired.bells[use] == b {
		delete(unpaired.bells, use)
	}
	unpaired.Unlock()
}

// use identifies the use of the area.
func (b *doorbell) use() [2]uint64 { return [2]uint64{b.q.area.key(0), b.q.area.key(1)} }

// ringHere wakes the sleepers of b, which is in this process, and reports whether it could. It
// cannot if one of them listens in the netpoller, because it parked before the two ends were
// paired.
func (b *doorbell) ringHere() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listens != nil {
		return false
	}
	b.in.cond.Broadcast()
	b.out.cond.Broadcast()
	return true
}
