package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A plan says how long to measure.
type plan struct {
	rounds int
	turn   time.Duration // of one contender in one round
}

// A sample is what one turn has shown.
type sample struct {
	messages int
	took     time.Duration
	cpu      time.Duration // of both processes
	mallocs  uint64        // in the measuring process
}

// A series is one contender's samples, one for each round.
type series struct {
	contender string
	samples   []sample
}

// A runner is one contender while a case is being measured.
type runner struct {
	peer     *harness.Peer
	link     *harness.Link
	load     harness.Case
	messages int // that fill a turn
}

// measure lets the contenders take turns under the load, A B C A B C, so that a
// machine that slows down slows all of them.
func (p plan) measure(ctx context.Context, peer *harness.Peer, load harness.Case, contenders []harness.Contender) (all []series, err error) {
	if p.rounds < 1 {
		return nil, errors.New("no rounds to measure")
	}
	var runners []*runner
	for _, c := range contenders {
		link, err := peer.Dial(ctx, c)
		if err != nil {
			return nil, err
		}
		defer link.Close()
		r := &runner{peer: peer, link: link, load: load}
		if err := r.calibrate(p.turn); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		runners = append(runners, r)
		all = append(all, series{contender: c.Name})
	}
	for range p.rounds {
		for i, r := range runners {
			s, err := r.sample()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].contender, err)
			}
			all[i].samples = append(all[i].samples, s)
		}
	}
	return all, nil
}

// calibrate finds how many messages fill a turn, and warms the connection up.
func (r *runner) calibrate(turn time.Duration) error {
	for r.messages = 1; ; r.messages *= 2 {
		start := time.Now()
		if err := r.link.Run(r.load, r.messages); err != nil {
			return err
		}
		// A quarter of a turn is long enough to foretell the rest.
		if took := time.Since(start); took >= turn/4 {
			r.messages = max(1, int(float64(r.messages)*float64(turn)/float64(took)))
			return nil
		}
	}
}

// sample takes one turn.
func (r *runner) sample() (s sample, err error) {
	s.messages = r.messages
	cpuBefore, err := r.cpu()
	if err != nil {
		return s, err
	}
	mallocsBefore := mallocs()
	start := time.Now()
	if err := r.link.Run(r.load, r.messages); err != nil {
		return s, err
	}
	s.took = time.Since(start)
	s.mallocs = mallocs() - mallocsBefore
	cpuAfter, err := r.cpu()
	s.cpu = cpuAfter - cpuBefore
	return s, err
}

// cpu is the processor time that both processes have used.
func (r *runner) cpu() (time.Duration, error) {
	mine, err := harness.CPU()
	if err != nil {
		return 0, err
	}
	theirs, err := r.peer.CPU()
	return mine + theirs, err
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}
