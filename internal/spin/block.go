//go:build linux

package spin

import (
	"runtime"
	"time"
)

const (
	// BlockMost is for how long a wait may block. Until then its thread keeps a P, which the runtime
	// takes away only some time later.
	BlockMost = time.Millisecond
	// blockAfter is after how many waits in a row that were shorter than BlockMost one may block.
	blockAfter = 3
)

// Block reports whether a wait for which Spin did not find anything may block, that is, wait in a
// system call of its own thread instead of parking in the netpoller. The kernel then runs the
// goroutine at once when something arrives; after a park it runs a thread of the netpoller, which
// often wakes another one. One wait of a process blocks at a time, and none if goroutines wait for a
// P, or if the network has events that no thread takes. If Block returns true, the caller must block
// for at most BlockMost, and then call Blocked.
func (w *Waiter) Block() bool {
	if w.brief < blockAfter || !process.blocks.taken.CompareAndSwap(false, true) {
		return false
	}
	if now := Clock(); now < 0 || runtime.GOMAXPROCS(0) == 1 || runnable() || !w.mayGoOn(true, now) {
		process.blocks.taken.Store(false)
		return false
	}
	return true
}

// Blocked is called for a wait that has blocked, in place of Woken.
func (w *Waiter) Blocked() {
	process.blocks.taken.Store(false)
	w.score = min(w.score+1, most)
}

// Lasted is called with the time for which a wait was parked or blocked.
func (w *Waiter) Lasted(d time.Duration) {
	if d < BlockMost {
		w.brief = min(w.brief+1, blockAfter)
	} else {
		w.brief = 0
	}
}
