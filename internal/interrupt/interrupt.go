// Package interrupt ends calls that know nothing of contexts when a context
// does.
package interrupt

import (
	"context"
	"net"
	"time"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// On runs f in a goroutine of its own when ctx is done. stop, called once, ends
// the arrangement, and waits for f if that has begun.
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

// Conn makes the calls on c fail with os.ErrDeadlineExceeded when ctx is done.
// stop, called once, ends the arrangement and clears both deadlines of c, which
// nobody else may set meanwhile.
func Conn(ctx context.Context, c net.Conn) (stop func()) {
	end := On(ctx, func() { c.SetDeadline(past) })
	return func() {
		end()
		c.SetDeadline(time.Time{})
	}
}
