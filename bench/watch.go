package main

import (
	"errors"
	"runtime"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
)

// A watch looks at who uses the processors meanwhile.
type watch struct {
	start time.Time
	busy  time.Duration // all processors
	ours  time.Duration // this process and all that it has started
}

func startWatch(runners []*runner) (w watch, err error) {
	if w.ours, err = ours(runners); err != nil {
		return w, err
	}
	w.start = time.Now()
	w.busy, err = busy()
	return w, err
}

// foreign is the part of all processors' time since the start that went to
// something else, from 0 to 1.
func (w watch) foreign(runners []*runner) (float64, error) {
	busy, err := busy()
	if err != nil {
		return 0, err
	}
	capacity := time.Since(w.start).Seconds() * float64(runtime.NumCPU())
	ours, err := ours(runners)
	if err != nil {
		return 0, err
	}
	used := (busy - w.busy) - (ours - w.ours)
	return min(max(used.Seconds()/capacity, 0), 1), nil
}

// busy is zero on systems that do not tell, where nothing looks foreign then.
func busy() (time.Duration, error) {
	busy, err := machine.Busy()
	if errors.Is(err, errors.ErrUnsupported) {
		return 0, nil
	}
	return busy, err
}

func ours(runners []*runner) (sum time.Duration, err error) {
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
