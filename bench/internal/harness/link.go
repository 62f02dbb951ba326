package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// A link is a connection on which patterns run one after the other. It is not safe
// for concurrent use.
type link struct {
	conn   net.Conn
	moves  bool // the connection moves to shared memory
	header [headerSize]byte
	buf    []byte
}

// headerSize is the length of the header before each run: the pattern (1 byte),
// the size (4) and the number (8) of the messages.
const headerSize = 13

// announce sends the header of the next run.
func (l *link) announce(p pattern, size, n int) error {
	l.header[0] = byte(p)
	binary.BigEndian.PutUint32(l.header[1:], uint32(size))
	binary.BigEndian.PutUint64(l.header[5:], uint64(n))
	_, err := l.conn.Write(l.header[:])
	return err
}

// transfer transfers n messages.
func (l *link) transfer(p pattern, size, n int) error {
	if err := l.announce(p, size, n); err != nil {
		return err
	}
	l.buf = sized(l.buf, size)
	return patterns[p].client(l.conn, l.buf, n)
}

// roundTrips makes n round trips, each after a pause.
func (l *link) roundTrips(size, n int, pause time.Duration, timer *timer) error {
	if err := l.announce(roundTrip, size, n); err != nil {
		return err
	}
	// A link for small messages does not need a buffer of readWindow bytes.
	if cap(l.buf) < size {
		l.buf = make([]byte, size)
	}
	return timeRoundTrips(l.conn, l.buf[:size], n, pause, timer)
}

// dialLink connects and waits until the server has accepted.
func dialLink(ctx context.Context, to target) (*link, error) {
	conn, err := to.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, moves: to.Moves}
	if err := l.greet(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return l, nil
}

// greet waits until the server has answered or ctx expires.
func (l *link) greet(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := l.conn.SetDeadline(deadline); err != nil {
			return err
		}
		defer l.conn.SetDeadline(time.Time{})
	}
	if err := l.announce(oneWay, 1, 0); err != nil {
		return err
	}
	return awaitConfirmation(l.conn)
}

// dialLinks opens n links.
func dialLinks(ctx context.Context, to target, n int) ([]*link, error) {
	links := make([]*link, n)
	first := min(n, probeConns)
	files := openFiles()
	if err := dialAll(ctx, to, links[:first]); err != nil {
		return nil, err
	}
	if first < n {
		if err := enoughFiles(files, n); err != nil {
			return nil, err
		}
	}
	return links, dialAll(ctx, to, links[first:])
}

// dialAll fills links, up to 16 at a time.
func dialAll(ctx context.Context, to target, links []*link) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range links {
		group.Go(func() (err error) {
			links[i], err = dialLink(ctx, to)
			return err
		})
	}
	return group.Wait()
}

// probeConns is the number of connections from which dialLinks estimates how many
// files all of them need.
const probeConns = 50

// enoughFiles returns an error if this process may not open as many files as n
// connections need. before is the number of open files before the first
// probeConns connections.
func enoughFiles(before uint64, n int) error {
	each := (openFiles() - before + probeConns/2) / probeConns // rounded, which ignores files opened once
	need := before + each*uint64(n) + probeConns               // with a reserve
	if limit := fileLimit(); need > limit {
		return fmt.Errorf("%d connections need about %d open files; the limit is %d", n, need, limit)
	}
	return nil
}

// openFiles returns the number of open files of this process, or 0 if it is not known.
func openFiles() uint64 {
	held, err := systemMemory()
	if err != nil {
		return 0
	}
	return held.FDs
}

// serveLinks serves links until the listener is closed.
func serveLinks(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			// Other errors are normal: either process may end first.
			if err := answer(conn); errors.Is(err, errWrongData) {
				fmt.Fprintln(os.Stderr, "bench: server:", err)
				os.Exit(1)
			}
		}()
	}
}

// answer is the server's end of a link. It takes part in one run after the other
// until the client closes the connection.
func answer(conn net.Conn) error {
	defer conn.Close()
	// An array on the stack would make the goroutine's stack grow, and it would stay large.
	header := make([]byte, headerSize)
	var buf []byte
	for {
		if _, err := io.ReadFull(conn, header); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if int(header[0]) >= len(patterns) {
			return fmt.Errorf("unknown pattern %d", header[0])
		}
		size := int(binary.BigEndian.Uint32(header[1:]))
		n := int(binary.BigEndian.Uint64(header[5:]))
		if n == 0 { // a greeting
			if err := confirm(conn); err != nil {
				return err
			}
			continue
		}
		if pattern(header[0]) != roundTrip {
			buf = sized(buf, size)
		} else if cap(buf) < size {
			buf = make([]byte, size)
		}
		if err := patterns[header[0]].server(conn, buf[:size], n); err != nil {
			return err
		}
	}
}
