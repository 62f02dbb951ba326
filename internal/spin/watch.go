//go:build linux

package spin

import (
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/lockorder"
)

// A Watch polls for all parked waits of a process in one goroutine. That pays with many busy
// connections: only one of their waits can poll for itself, and each wake-up of another costs system
// calls at both ends. The zero value is ready to use. It is safe for concurrent use.
//
// The goroutine starts when several waits are parked, and exists as long as it saves more than it
// costs. Its polling is charged to the budget, as that of a Waiter.
type Watch struct {
	parked atomic.Int32 // waits between Park and Unpark
	rest   atomic.Int32 // calls of Add to come without a run
	runs   atomic.Bool

	mu   lockorder.Mutex[lockorder.Watch]
	list []*Watched

	// Of the goroutine that runs:
	found []*Watched
	gain  time.Duration // what the last runs have saved, less what they cost
	vain  int32         // how many calls runs in vain have led to
}

// Watched is a parked wait. Ready reports whether it may be over; it must not block. Wake makes the waiting
// goroutine run. The goroutine of the Watch calls both.
type Watched struct {
	Ready func() bool
	Wake  func()

	place int           // on the list, from 1; 0: it is not there
	since time.Duration // when the goroutine first looked; 0: it has not
	left  bool          // the goroutine has given it up
}

const (
	watchLeast = 4                     // waits must be parked for a run to start
	watchIdle  = 50 * time.Microsecond // a run ends when it has polled for so long since it last found something
	watchStays = 2 * time.Millisecond  // a wait parks alone when it has been watched for so long
	watchSaves = 5 * time.Microsecond  // what a find saves, at both ends
	watchGain  = 4 * watchIdle         // the most that runs may have gained for the judgement of the next ones
	watchVain  = 1024                  // calls of Add without a run after one in vain, at most
	// watchLong is how many yields, without a find between them, show that another thread needs the processor.
	// One is no evidence: it may be the peer's, whose messages the next look finds.
	watchLong = 4
	// watchEvents is at how many looks at the network in a row, chainTime apart, there must be events for a
	// run to end. They may be those of waits that are watched.
	watchEvents = 16
	// yieldNone is how long a yield takes at most if no other goroutine has run.
	yieldNone = 700 * time.Nanosecond
)

// Runs reports whether the goroutine exists.
func (w *Watch) Runs() bool { return w.runs.Load() }

// Park announces a wait that is about to park. The caller calls Unpark when that is over.
func (w *Watch) Park(x *Watched) {
	x.left = false
	w.parked.Add(1)
}

// Unpark ends what Park has begun.
func (w *Watch) Unpark() { w.parked.Add(-1) }

// Add makes the goroutine look after a wait between Park and Unpark, and reports whether it does. The
// caller then blocks until Wake, and calls Remove. It returns false for a wait for which nothing comes
// for long: that must park alone, where deadlines and the end of a peer are noticed. If there is no
// goroutine, Add may start it.
func (w *Watch) Add(x *Watched) bool {
	if !w.runs.Load() {
		w.start()
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.runs.Load() || x.left {
		return false
	}
	w.list = append(w.list, x)
	x.place, x.since = len(w.list), 0
	return true
}

// Remove ends what Add has begun, if the goroutine has not.
func (w *Watch) Remove(x *Watched) {
	w.mu.Lock()
	if x.place > 0 {
		w.removeLocked(x)
	}
	w.mu.Unlock()
}

func (w *Watch) removeLocked(x *Watched) {
	last := len(w.list) - 1
	moved := w.list[last]
	w.list[x.place-1], w.list[last] = moved, nil
	w.list = w.list[:last]
	moved.place, x.place = x.place, 0
}

// start starts the goroutine if that is likely to pay off.
func (w *Watch) start() {
	if w.parked.Load() < watchLeast || w.rest.Load() > 0 && w.rest.Add(-1) >= 0 {
		return
	}
	limit, ok := process.begin(&process.watches, longest, 0)
	if !ok {
		w.rest.Store(watchLeast)
		return
	}
	w.runs.Store(true)
	go w.run(limit)
}

// run looks until that does not pay any more.
func (w *Watch) run(limit time.Duration) {
	l := watchLoop{w: w, now: Clock()}
	for !l.over && l.spent < limit && l.idle < watchIdle {
		l.turn()
	}
	w.gain = min(w.gain+l.saved-l.polled, watchGain)
	if w.gain > 0 {
		w.vain = 0
	} else {
		w.gain = 0
		w.vain = min(max(2*w.vain, 1), watchVain)
	}
	w.rest.Store(w.vain)
	w.mu.Lock()
	w.runs.Store(false)
	w.found = append(w.found[:0], w.list...)
	for len(w.list) > 0 {
		w.removeLocked(w.list[0])
	}
	w.mu.Unlock()
	w.wake()
	process.end(&process.watches, l.spent)
}

func (w *Watch) wake() {
	for i, x := range w.found {
		x.Wake()
		w.found[i] = nil
	}
}

// look wakes the waits that are over, and returns how many these are.
func (w *Watch) look(now time.Duration) int {
	w.found = w.found[:0]
	n := 0
	w.mu.Lock()
	for i := 0; i < len(w.list); {
		x := w.list[i]
		switch {
		case x.Ready():
			n++
		case x.since == 0:
			x.since = now
			i++
			continue
		case now-x.since > watchStays:
			x.left = true
		default:
			i++
			continue
		}
		w.removeLocked(x)
		w.found = append(w.found, x)
	}
	w.mu.Unlock()
	w.wake()
	return n
}

// watchLoop is one run of a Watch.
type watchLoop struct {
	w       *Watch
	now     time.Duration // when the clock was last read
	polled  time.Duration // how long it took, without the time of other goroutines and threads,
	spent   time.Duration // less what it saved,
	idle    time.Duration // and since it last found something
	saved   time.Duration
	netpoll time.Duration // when it last looked at the network
	events  int           // looks at the network in a row that found events
	long    int           // yields since then that took longer than yieldLong
	over    bool          // other threads need the processor, or a P must poll the network
}

// turn looks, and yields: to the goroutines that it woke, to others that are ready to run, or to
// other threads. A goroutine that always runs, or is ready to, keeps its P from polling the network.
func (l *watchLoop) turn() {
	found := l.w.look(l.now)
	switch {
	case found > 0:
		l.charge()
		save := time.Duration(found) * watchSaves
		l.idle, l.long = 0, 0
		l.saved += save
		l.spent = max(0, l.spent-save)
		yield()
		l.now = Clock()
	case runnable():
		l.charge()
		before := l.now
		yield()
		if l.now = Clock(); l.now-before < yieldNone { // they are ready on another P
			l.yieldThread()
		}
	default:
		Pause(stepPauses)
		l.charge()
		l.yieldThread()
	}
	if l.now-l.netpoll > chainTime {
		l.netpoll = l.now
		if l.events++; !pending() {
			l.events = 0
		}
		l.over = l.over || l.events == watchEvents
	}
}

// charge adds the time since the clock was last read.
func (l *watchLoop) charge() {
	now := Clock()
	d := now - l.now
	l.now = now
	l.polled += d
	l.spent += d
	l.idle += d
}

// yieldThread lets other threads run.
func (l *watchLoop) yieldThread() {
	before := l.now
	schedYield()
	now := Clock()
	if now-before <= yieldShort {
		l.charge()
		return
	}
	l.now = now
	if now-before > yieldLong {
		l.long++
		l.over = l.long == watchLong
	}
}
