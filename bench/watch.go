package main

import (
	"errors"
	"runtime"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
)

// A watch measures how much processor time other programs use.
type watch struct {
	start time.Time
	busy  time.Duration // all processors
	ours  time.Duration // this process and the measured ones
}

func startWatch(runners []*runner) (w watch, err error) {
	if w.ours, err = ownTime(runners); err != nil {
		return w, err
	}
	w.start = time.Now()
	w.busy, err = busyTime()
	return w, err
}

// foreign returns the share of all processors' time since the start that other
// programs used, from 0 to 1.
func (w watch) foreign(runners []*runner) (float64, error) {
	busy, err := busyTime()
	if err != nil {
		return 0, err
	}
	capacity := time.Since(w.start).Seconds() * float64(runtime.NumCPU())
	ours, err := ownTime(runners)
	if err != nil {
		return 0, err
	}
	used := (busy - w.busy) - (ours - w.ours)
	return min(max(used.Seconds()/capacity, 0), 1), nil
}

// busyTime returns zero on systems that do not report it. No time looks foreign there.
func busyTime() (time.Duration, error) {
	busy, err := machine.Busy()
	if errors.Is(err, errors.ErrUnsupported) {
		return 0, nil
	}
	return busy, err
}

func ownTime(runners []*runner) (sum time.Duration, err error) {
	if sum, err = harness.OwnCPU(); err != nil {
		return 0, err
	}
	for _, r := range runners {
		used, err := r.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}
