//go:build linux

package spin

import (
	"sync/atomic"
	"time"
)

// Watch decides when one goroutine should poll for all parked waits of a device. That pays with many
// busy connections: only one of their waits can poll for itself, and every other message costs a
// wake-up by the kernel. The zero value is ready to use. It is safe for concurrent use.
//
// The goroutine starts when several waits want to poll at once, and exists as long as it saves more
// than it costs. Its polling is charged to the budget, as that of a Waiter.
type Watch struct {
	runs atomic.Bool
	pays atomic.Bool  // the last runs have paid off
	rest atomic.Int32 // calls of Start to come without a run

	// Of the goroutine that runs:
	gain  time.Duration // what the last runs have saved, less what they cost
	vain  int32         // how many calls runs in vain have led to
	round uint8         // the number of the last round
}

// Watched are the parked waits of a device. Only the goroutine of a Watch calls its methods.
type Watched interface {
	// Look wakes the waits for which something has arrived. It returns how many these are, and how
	// many belong to connections for which it has found nothing in this round before.
	Look(round uint8) (found, others int)
	// Leave makes the peers wake the waits again, and wakes those for which something has arrived by
	// then. It is called after the last Look.
	Leave()
}

// When a run ends.
const (
	watchIdle   = 50 * time.Microsecond // it has polled for so long since it last found something,
	watchRound  = 16                    // or so many finds, a round,
	watchOthers = 4                     // were for fewer connections than this: they poll better for themselves,
	watchEvents = 16                    // or the network had events at so many looks in a row, chainTime apart
)

const (
	// watchGain is the most that runs may have gained for the judgement of the next ones.
	watchGain = 4 * watchIdle
	// mostRest is how many calls of Start have no run, at most, after runs in vain.
	mostRest = 256
	// watchSaves bounds what a find saves. A busy process overestimates the cost of its wake-ups.
	watchSaves = costFirst
	// yieldNone is how long a yield takes at most if no other goroutine has run.
	yieldNone = 700 * time.Nanosecond
)

// Runs reports whether the goroutine exists.
func (w *Watch) Runs() bool { return w.runs.Load() }

// Possible reports whether a wait that is about to park should be among the Watched, because the
// goroutine exists or may start soon.
func (w *Watch) Possible() bool {
	return w.runs.Load() || w.pays.Load() || process.waits.asked.Load()
}

// Start starts the goroutine if it does not exist and is likely to pay off. A wait calls it before it
// parks, if another one is parked.
func (w *Watch) Start(of Watched) {
	if w.runs.Load() || !w.Possible() {
		return
	}
	if w.rest.Load() > 0 && w.rest.Add(-1) >= 0 {
		return
	}
	if w.runs.CompareAndSwap(false, true) {
		go w.run(of)
	}
}

// run looks until that does not pay any more.
func (w *Watch) run(of Watched) {
	defer w.runs.Store(false)
	paid := false
	if limit, ok := process.begin(&process.watches, longest); ok {
		l := watchLoop{of: of, now: clock(), round: w.round + 1}
		for l.goesOn(limit) {
			l.turn()
		}
		of.Leave()
		process.end(&process.watches, l.spent)
		w.round = l.round
		w.gain = min(w.gain+l.saved-l.polled, watchGain)
		paid = !l.few && w.gain > 0
	}
	if paid {
		w.vain = 0
	} else {
		w.gain = 0
		w.vain = min(max(2*w.vain, 1), mostRest)
	}
	w.rest.Store(w.vain)
	w.pays.Store(w.vain == 0)
}

// clock is the Clock of a watchLoop. Tests replace it.
var clock = Clock

// watchLoop is one run of a Watch.
type watchLoop struct {
	of      Watched
	now     time.Duration // when the clock was last read
	polled  time.Duration // how long it took, without the time of other goroutines and threads,
	spent   time.Duration // less what it saved,
	idle    time.Duration // and since it last found something
	saved   time.Duration
	netpoll time.Duration // when it last looked at the network
	events  int           // looks at the network in a row that found events
	round   uint8
	found   int  // in this round,
	others  int  // for so many connections
	few     bool // that was too few
	over    bool // other threads need the processor, or a P must poll the network
}

func (l *watchLoop) goesOn(limit time.Duration) bool {
	return !l.over && l.spent < limit && l.idle < watchIdle && !l.few
}

// turn looks, and yields: to the goroutines that it woke, to others that are ready to run, or to
// other threads. A goroutine that always runs, or is ready to, keeps its P from polling the network.
// Events may be those of waits that are watched and are left unread, so turn does not react to the
// first ones, as a Waiter does.
func (l *watchLoop) turn() {
	found, others := l.of.Look(l.round)
	switch {
	case found > 0:
		l.charge()
		l.find(found, others)
		yield()
		l.now = clock()
	case runnable():
		l.charge()
		before := l.now
		yield()
		if l.now = clock(); l.now-before < yieldNone { // they are ready on another P
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

// find counts what was found.
func (l *watchLoop) find(found, others int) {
	l.idle = 0
	save := time.Duration(found) * min(woken.one(), watchSaves)
	l.saved += save
	l.spent = max(0, l.spent-save)
	l.found += found
	l.others += others
	if l.found >= watchRound {
		l.few = l.others < watchOthers
		l.found, l.others = 0, 0
		l.round++
	}
}

// charge adds the time since the clock was last read.
func (l *watchLoop) charge() {
	now := clock()
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
	now := clock()
	if now-before <= yieldShort {
		l.charge()
		return
	}
	l.now = now
	l.over = now-before > yieldLong
}
