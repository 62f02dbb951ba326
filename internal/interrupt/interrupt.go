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
// stop, which must be called once, ends that and clears both deadlines of conn. Until then no other code may
// set them.
func Conn(ctx context.Context, conn net.Conn) (stop func()) {
	end := On(ctx, func() {
		if conn.SetDeadline(past) != nil {
			conn.Close()
		}
	})
	return func() {
		end()
		conn.SetDeadline(time.Time{})
	}
}
