// Package interrupt ends calls that take no context when a context is done.
package interrupt

import (
	"context"
	"net"
	"time"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// On runs f in its own goroutine when ctx is done. stop, which must be called once, prevents
// that, or waits for f to return if it has started.
func On(ctx context.Context, f func()) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

// Conn makes calls on conn fail with os.ErrDeadlineExceeded when ctx is done, or closes conn if that has no deadlines.
// stop, which must be called once, ends that. Until then no other code may set deadlines. If ctx was done, stop clears
// both deadlines of conn; otherwise they are what they were.
func Conn(ctx context.Context, conn net.Conn) (stop func()) {
	interrupted := false
	end := On(ctx, func() {
		interrupted = true
		if conn.SetDeadline(past) != nil {
			conn.Close()
		}
	})
	return func() {
		if end(); interrupted {
			conn.SetDeadline(time.Time{})
		}
	}
}
