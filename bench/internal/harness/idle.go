package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// idle holds links that carry nothing. It is never run. It keeps the links from being
// closed by the garbage collector.
type idle []*link

func openIdle(ctx context.Context, to target, c Case) (load, error) {
	links, err := dialLinks(ctx, to, c.Conns)
	return idle(links), err
}

func (idle) run(int, *times) error { return errors.ErrUnsupported }

// openHome opens links that have been in shared memory, if they can, and have come home.
func openHome(ctx context.Context, to target, c Case) (load, error) {
	links, err := dialLinks(ctx, to, c.Conns)
	if err != nil {
		return nil, err
	}
	if err := settleAll(links); err != nil {
		return nil, err
	}
	for _, l := range links {
		for l.moves && deviceOf(l.conn) == shared {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return idle(links), nil
}

// readTimeout is the time after which Reads of ConnsRead time out.
const readTimeout = 150 * time.Millisecond

// openReading opens links and reads from each until the process ends. The Reads time out one
// after the other, not all at once.
func openReading(ctx context.Context, to target, c Case) (load, error) {
	links, err := dialLinks(ctx, to, c.Conns)
	if err != nil {
		return nil, err
	}
	for i, l := range links {
		first := readTimeout * time.Duration(i+1) / time.Duration(len(links))
		go func() {
			fmt.Fprintln(os.Stderr, "bench: client:", l.readInVain(first))
			os.Exit(1)
		}()
	}
	return idle(links), nil
}

// readInVain reads, with a deadline in first and then every readTimeout, until a Read does not time out, and returns why.
func (l *link) readInVain(first time.Duration) error {
	b := make([]byte, 1)
	for next := first; ; next = readTimeout {
		if err := l.conn.SetReadDeadline(time.Now().Add(next)); err != nil {
			return err
		}
		if n, err := l.conn.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("read of a silent connection returned %d, %v", n, err)
		}
	}
}
