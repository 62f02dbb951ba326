package harness

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// setup opens and closes one link per operation.
type setup struct{ to target }

func openSetup(_ context.Context, to target, _ Case) (load, error) { return &setup{to}, nil }

func (s *setup) run(n int, times *times) error {
	timer := times.shard(0)
	timer.start()
	for range n {
		to := s.to
		if to.load.Kind.learns() {
			to = to.fresh()
		}
		if err := live(to, 0, 0); err != nil {
			return err
		}
		timer.lap()
	}
	return nil
}

// live dials, makes one exchange and then the given number of round trips, and closes.
func live(to target, size, exchanges int) error {
	l, err := dialLink(context.Background(), to)
	if err != nil {
		return err
	}
	if exchanges > 0 {
		if err := l.roundTrips(size, exchanges, 0, new(times).shard(0)); err != nil {
			l.conn.Close()
			return err
		}
	}
	return l.conn.Close()
}

// burst opens and closes many links at once per operation.
type burst struct{ to target }

func openBurst(_ context.Context, to target, _ Case) (load, error) { return &burst{to}, nil }

func (b *burst) run(n int, times *times) error {
	timer := times.shard(0)
	for range n {
		timer.start()
		var group errgroup.Group
		for range b.to.load.Conns {
			group.Go(func() error { return live(b.to, 0, 0) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		timer.lap()
	}
	return nil
}

// life is the whole life of one link per operation, at a fresh address.
type life struct{ to target }

func openLife(_ context.Context, to target, _ Case) (load, error) { return &life{to}, nil }

// Connections from which LifeAgain learns, and the exchanges of each.
const (
	lessons         = 10
	lessonExchanges = 100
)

func (l *life) run(n int, times *times) error {
	timer := times.shard(0)
	for range n {
		to := l.to.fresh()
		if to.load.Kind == LifeAgain {
			for range lessons {
				if err := live(to, to.load.Size, lessonExchanges); err != nil {
					return err
				}
			}
		}
		timer.start()
		if err := live(to, to.load.Size, to.load.Exchanges); err != nil {
			return err
		}
		timer.lap()
	}
	return nil
}
