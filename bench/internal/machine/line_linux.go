package machine

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Line measures how long a cache line takes from one processor to another and
// back. Two threads, each bound to one processor, write the line in turn.
type Line struct {
	word    *word
	measure chan chan time.Duration
	join    chan struct{}
}

// word occupies a cache line of its own.
type word struct {
	_ [64]byte
	atomic.Uint32
	_ [60]byte
}

const (
	lineBatches = 25
	lineTrips   = 20 // per batch
	// lineStop in the word ends a measurement. The other thread answers with zero.
	lineStop = ^uint32(0)
)

// NewLine prepares to measure between the first two processors that this process
// may use. It returns nil if this is not possible. Close ends its threads.
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

// RoundTrip takes about a millisecond and returns the median of several
// measurements. It returns zero if l is nil.
func (l *Line) RoundTrip() time.Duration {
	if l == nil {
		return 0
	}
	result := make(chan time.Duration)
	l.measure <- result
	return <-result
}

// bind binds the calling goroutine's thread to one processor. The goroutine never
// unlocks the thread, so the thread ends with it.
func bind(processor int) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(processor)
	unix.SchedSetaffinity(0, &only)
}

// ask runs a measurement for each request.
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
		l.word.Store(lineStop)
		for l.word.Load() != 0 {
		}
		slices.Sort(batches)
		result <- batches[lineBatches/2]
	}
}

// answer adds one to each odd number.
func (l *Line) answer(processor int) {
	bind(processor)
	for range l.join {
		for {
			seen := l.word.Load()
			if seen == lineStop {
				l.word.Store(0)
				break
			}
			if seen%2 == 1 {
				l.word.Store(seen + 1)
			}
		}
	}
}
