package shmdir

import (
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// A socket on which a claim was opened, and whose connection then used SDP, serves the claim of a
// later dial to the same listener. Such a claim proves as much as the first one: it has a
// commitment of its own, an answer and an opening. Only the listener is not looked up again.

const (
	// keptTime is how long the dialler keeps such a socket: less than the listener (claimTime), so
	// that the listener does not close it as a claim is on its way.
	keptTime = claimTime / 2
	// mostKept sockets are kept, and mostKeptAt for one listener. A listener keeps mostKept too.
	mostKept   = 16
	mostKeptAt = 4
)

// keptSockets are the sockets of this process that wait for the next dial. It is safe for
// concurrent use.
type keptSockets struct {
	mu    sync.Mutex
	all   []dialled   // the longest idle first
	alarm *time.Timer // when the time of the first one ends; nil: not set
}

var kept keptSockets

// put adds a socket. If there are too many, it closes an older one.
func (k *keptSockets) put(d dialled) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first, same := 0, 0
	for i := len(k.all) - 1; i >= 0; i-- {
		if k.all[i].at == d.at {
			first, same = i, same+1
		}
	}
	switch {
	case same >= mostKeptAt:
		k.dropLocked(first)
	case len(k.all) >= mostKept:
		k.dropLocked(0)
	}
	d.since = time.Now()
	k.all = append(k.all, d)
	k.watchLocked()
}

// take returns the newest socket to the listener at the address, if its user may be the peer.
func (k *keptSockets) take(dir *Dir, at netip.AddrPort, uids []int) (dialled, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.all) - 1; i >= 0; i-- {
		d := k.all[i]
		if d.dir == dir && d.at.AddrPort == at && MayMeet(d.uid, os.Geteuid(), uids) == nil {
			k.all = slices.Delete(k.all, i, i+1)
			return d, true
		}
	}
	return dialled{}, false
}

func (k *keptSockets) dropLocked(i int) {
	discard(k.all[i].fd)
	k.all = slices.Delete(k.all, i, i+1)
}

// watchLocked sets the alarm for the first socket.
func (k *keptSockets) watchLocked() {
	if k.alarm != nil || len(k.all) == 0 {
		return
	}
	k.alarm = time.AfterFunc(time.Until(k.all[0].since.Add(keptTime)), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.alarm = nil
		for len(k.all) > 0 && time.Since(k.all[0].since) >= keptTime {
			k.dropLocked(0)
		}
		k.watchLocked()
	})
}

// CloseIdle closes the sockets that this process keeps for later dials.
func CloseIdle() {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	for len(kept.all) > 0 {
		kept.dropLocked(0)
	}
}
