//go:build linux

package shm

import (
	"sync"

	"github.com/gosdp/gosdp/internal/spin"
)

// watch is the readers of this process that are parked, for one goroutine that polls for all of them
// while many connections are busy (spin.Watch). The goroutine clears their words in the shared memory,
// so that the peers do not ring, and wakes the reader of a ring in which there is a record. Before it
// ends, it sets the words again and then looks once more, as a reader does before it parks.
//
// A reader is on the list only in Wait, while the memory is mapped. The goroutine looks at its queue
// pair with mu held. watch.mu comes before bell.mu.
type watch struct {
	spin.Watch

	mu    sync.Mutex
	looks bool  // the goroutine has looked, and not left
	round uint8 // of the last look
	n     int
	list  [mostWatched]*doorbell
	next  int // whose place is taken next if the list is full
}

// mostWatched is how many readers there are on the list. One more takes the place of another. A look at
// each takes some nanoseconds, so one for which nothing comes leaves after idleRounds.
const (
	mostWatched = 512
	idleRounds  = 128
)

var watched watch

// add puts a reader on the list. That is its last step before it parks: its word is set, and there was
// nothing to wake up for.
func (w *watch) add(b *doorbell) {
	if !w.Possible() || !b.q.rx.spin.Decides() || spin.Clock() < 0 { // in a bubble; see spin's budget
		return
	}
	if !w.mu.TryLock() { // the reader is not watched, rather than wait here
		return
	}
	if b.slot == 0 {
		w.insertLocked(b)
	}
	if w.looks {
		b.cover()
	}
	several := w.n > 1
	w.mu.Unlock()
	if several {
		startWatch(w)
	}
}

// startWatch starts the goroutine if that is likely to pay off. Tests replace it.
var startWatch = func(w *watch) { w.Start(w) }

func (w *watch) insertLocked(b *doorbell) {
	at := w.n
	if at < mostWatched {
		w.n++
	} else {
		at = w.next
		w.next = (at + 1) % mostWatched
		old := w.list[at]
		old.slot = 0
		if old.uncover() {
			old.rouse(&old.in)
		}
	}
	w.list[at] = b
	b.slot = int16(at + 1)
	b.since = w.round
	b.listed = true
}

// remove takes a reader off the list, after it was parked.
func (w *watch) remove(b *doorbell) {
	if !b.listed {
		return
	}
	b.listed = false
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.slot > 0 {
		w.removeLocked(int(b.slot) - 1)
	}
}

func (w *watch) removeLocked(at int) {
	b := w.list[at]
	w.n--
	moved := w.list[w.n]
	w.list[at], w.list[w.n] = moved, nil
	moved.slot = int16(at + 1)
	b.slot, b.covered = 0, false
}

// Look wakes the readers for which there is something; see spin.Watched.
func (w *watch) Look(round uint8) (found, others int) {
	var up [mostWatched]*doorbell
	w.mu.Lock()
	w.looks, w.round = true, round
	for at := 0; at < w.n; {
		b := w.list[at]
		if !b.covered {
			b.cover()
		}
		if !b.q.hasWork() {
			if round-b.since < idleRounds {
				at++
			} else {
				w.dropLocked(at)
			}
			continue
		}
		up[found] = b
		found++
		if b.round != round {
			b.round = round
			others++
		}
		w.removeLocked(at)
	}
	w.mu.Unlock()
	for _, b := range up[:found] {
		b.rouse(&b.in)
	}
	return found, others
}

// Leave makes the peers ring again; see spin.Watched.
func (w *watch) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = false
	for at := 0; at < w.n; {
		b := w.list[at]
		if !b.uncover() {
			at++
			continue
		}
		w.removeLocked(at)
		b.rouse(&b.in)
	}
}

// dropLocked makes the peer of a parked reader ring again.
func (w *watch) dropLocked(at int) {
	b := w.list[at]
	wakes := b.uncover()
	w.removeLocked(at)
	if wakes {
		b.rouse(&b.in)
	}
}

// cover clears the reader's word, because the watch looks at its ring. watch.mu is held.
func (b *doorbell) cover() {
	b.covered = true
	if word := b.word(&b.in); word.Load() != 0 {
		word.Store(0)
	}
}

// uncover sets the reader's word again, and reports whether the reader must wake up. watch.mu is held.
func (b *doorbell) uncover() bool {
	if !b.covered {
		return false
	}
	b.covered = false
	b.doze(&b.in)
	return b.full() || b.up(&b.in)
}
