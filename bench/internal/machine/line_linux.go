package machine

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Line measures how long a cache line takes from one processor to another one
// and back. Two threads, each bound to a processor of its own, write it in turn.
type Line struct {
	word    *word
	measure chan chan time.Duration
	join    chan struct{}
}

// word has its cache line for itself.
type word struct {
	_ [64]byte
	atomic.Uint32
	_ [60]byte
}

const (
	lineBatches = 25
	lineTrips   = 20 // in a batch
	// lineOver in the word ends a measurement; the other side answers zero.
	lineOver = ^uint32(0)
)

// NewLine prepares to measure between the first two processors that this process
// may use. It returns nil where that cannot be done. Close ends its threads.
func NewLine() *Line {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil || allowed.Count() < 2 {
		return nil
	}
	var processors []int
	for i := 0; len(processors) < 2; i++ {
		if allowed.IsSet(i) {
			processors = append(processors, i)
		}
	}
	l := &Line{
		word:    new(word),
		measure: make(chan chan time.Duration),
		join:    make(chan struct{}),
	}
	go l.ask(processors[0])
	go l.answer(processors[1])
	return l
}

// Close ends the threads.
func (l *Line) Close() {
	if l != nil {
		close(l.measure)
	}
}

// RoundTrip measures once, which takes about a millisecond, and returns the
// median. It returns zero where the line cannot be measured.
func (l *Line) RoundTrip() time.Duration {
	if l == nil {
		return 0
	}
	result := make(chan time.Duration)
	l.measure <- result
	return <-result
}

// bind keeps the calling goroutine's thread on one processor. The thread ends
// with the goroutine, since it is never unlocked.
func bind(processor int) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(processor)
	unix.SchedSetaffinity(0, &only)
}

// ask measures whenever it is told to.
func (l *Line) ask(processor int) {
	bind(processor)
	defer close(l.join)
	for result := range l.measure {
		l.join <- struct{}{}
		var batches []time.Duration
		next := uint32(1)
		for range lineBatches {
			start := time.Now()
			for range lineTrips {
				l.word.Store(next)
				for l.word.Load() != next+1 {
				}
				next += 2
			}
			batches = append(batches, time.Since(start)/lineTrips)
		}
		l.word.Store(lineOver)
		for l.word.Load() != 0 {
		}
		slices.Sort(batches)
		result <- batches[lineBatches/2]
	}
}

// answer makes each odd number even, by adding one.
func (l *Line) answer(processor int) {
	bind(processor)
	for range l.join {
		for {
			seen := l.word.Load()
			if seen == lineOver {
				l.word.Store(0)
				break
			}
			if seen%2 == 1 {
				l.word.Store(seen + 1)
			}
		}
	}
}
