package harness

import (
	"context"
	"errors"
	"sync"
	"time"
)

// roundTrips makes round trips on 1 % of the links concurrently, but on at least one.
type roundTrips struct {
	links []*link
	size  int
	pause time.Duration
}

func openRoundTrips(ctx context.Context, to target, c Case) (load, error) {
	r := &roundTrips{size: c.Size, pause: pauses[c.Kind]}
	var err error
	r.links, err = dialLinks(ctx, to, c.Conns)
	return r, err
}

func (r *roundTrips) busy() []*link {
	busy := make([]*link, (len(r.links)+99)/100)
	for i := range busy { // spread evenly
		busy[i] = r.links[i*len(r.links)/len(busy)]
	}
	return busy
}

func (r *roundTrips) prepare() error { return settleAll(r.busy()) }

func (r *roundTrips) run(n int, times *times) error {
	busy := r.busy()
	return split(n, len(busy), times, func(i, n int, timer *timer) error {
		return busy[i].roundTrips(r.size, n, r.pause, timer)
	})
}

// split divides n operations between goroutines and waits until all are done.
func split(n, goroutines int, times *times, do func(i, n int, timer *timer) error) error {
	failed := make([]error, goroutines)
	var group sync.WaitGroup
	for i := range goroutines {
		timer := times.shard(i)
		part := (n + goroutines - 1 - i) / goroutines
		if part == 0 {
			continue
		}
		if goroutines == 1 {
			return do(i, part, timer)
		}
		group.Go(func() { failed[i] = do(i, part, timer) })
	}
	group.Wait()
	return errors.Join(failed...)
}

// streaming sends messages one way or both ways on one link.
type streaming struct {
	link    *link
	pattern pattern
	size    int
}

func openStream(ctx context.Context, to target, c Case) (load, error) {
	s := &streaming{pattern: oneWay, size: c.Size}
	switch c.Kind {
	case StreamBuf:
		s.pattern = oneWayBuffered
	case Duplex:
		s.pattern = bothWays
	}
	var err error
	s.link, err = dialLink(ctx, to)
	return s, err
}

func (s *streaming) prepare() error { return s.link.settle() }

func (s *streaming) run(n int, _ *times) error { return s.link.transfer(s.pattern, s.size, n) }
