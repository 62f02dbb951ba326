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

// A link is a connection that carries patterns, one after the other. One
// goroutine at a time may use it.
type link struct {
	conn  net.Conn
	order [orderSize]byte
	buf   []byte
}

// orderSize is the length of what precedes each run and tells the server its
// part: the pattern (1 byte), the size (4) and the number (8) of the messages.
const orderSize = 13

// announce tells the server what comes next.
func (l *link) announce(p pattern, size, n int) error {
	l.order[0] = byte(p)
	binary.BigEndian.PutUint32(l.order[1:], uint32(size))
	binary.BigEndian.PutUint64(l.order[5:], uint64(n))
	_, err := l.conn.Write(l.order[:])
	return err
}

// transfer has n messages cross.
func (l *link) transfer(p pattern, size, n int) error {
	if err := l.announce(p, size, n); err != nil {
		return err
	}
	l.buf = sized(l.buf, size)
	return patterns[p].client(l.conn, l.buf, n)
}

// ask makes n round trips, each after a silence.
func (l *link) ask(size, n int, silence time.Duration, timer *timer) error {
	if err := l.announce(roundTrip, size, n); err != nil {
		return err
	}
	// A link that is asked little does not need a large buffer.
	if cap(l.buf) < size {
		l.buf = make([]byte, size)
	}
	return ask(l.conn, l.buf[:size], n, silence, timer)
}

// dialLink connects, and makes sure that the server has accepted.
func dialLink(ctx context.Context, to target) (*link, error) {
	conn, err := to.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn}
	if err := l.greet(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return l, nil
}

// greet waits until the server has answered, or the context's time is over.
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
	return confirmed(l.conn)
}

// dialLinks connects n times.
func dialLinks(ctx context.Context, to target, n int) ([]*link, error) {
	links := make([]*link, n)
	first := min(n, foretold)
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

// dialAll fills links, several at a time.
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

// foretold is how many connections foretell what more of them need.
const foretold = 50

// enoughFiles returns an error if this process may not open as many files as n
// connections need. There were so many before the first foretold ones.
func enoughFiles(before uint64, n int) error {
	each := (openFiles() - before + foretold/2) / foretold // but for what comes once
	need := before + each*uint64(n) + foretold             // and some for the rest
	if limit := fileLimit(); need > limit {
		return fmt.Errorf("%d connections need about %d open files, and the limit is %d", n, need, limit)
	}
	return nil
}

// openFiles is how many files this process has open, 0 where nobody knows.
func openFiles() uint64 {
	held, err := systemMemory()
	if err != nil {
		return 0
	}
	return held.FDs
}

// serveLinks answers every link for as long as the listener lives.
func serveLinks(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			// Not an error: processes end in the order that they like.
			if err := answer(conn); errors.Is(err, errWrongData) {
				fmt.Fprintln(os.Stderr, "bench: server:", err)
				os.Exit(1)
			}
		}()
	}
}

// answer is the server's end of a link: it does its part of one run after the
// other until the client closes the connection.
func answer(conn net.Conn) error {
	defer conn.Close()
	// The stack of a goroutine that holds a large array stays large.
	order := make([]byte, orderSize)
	var buf []byte
	for {
		if _, err := io.ReadFull(conn, order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if int(order[0]) >= len(patterns) {
			return fmt.Errorf("no pattern %d", order[0])
		}
		size := int(binary.BigEndian.Uint32(order[1:]))
		n := int(binary.BigEndian.Uint64(order[5:]))
		if n == 0 { // a greeting
			if err := confirm(conn); err != nil {
				return err
			}
			continue
		}
		if pattern(order[0]) != roundTrip {
			buf = sized(buf, size)
		} else if cap(buf) < size {
			buf = make([]byte, size)
		}
		if err := patterns[order[0]].server(conn, buf[:size], n); err != nil {
			return err
		}
	}
}
