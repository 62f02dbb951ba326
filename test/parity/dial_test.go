package parity

import (
	"context"
	"errors"
	"net"
	"time"
)

var dialScripts = []script{
	{name: "dial", run: func(r *run) {
		ln, err := r.Listen()
		check(err)
		address := ln.Addr().String()
		accepted := make(chan conn, 1)
		go func() { accepted <- r.accept(ln) }()
		c, err := r.Dialer(20*time.Second).Dial("tcp", address)
		r.note("Dial with a timeout", describe(err))
		r.must("the addresses of both ends match", mirrored(c, <-accepted))

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.note("Dial with a cancelled context", timed(func() error { return r.dial(ctx, 0, address) }))
		r.note("Dial with a timeout that has passed", timed(func() error {
			return r.dial(context.Background(), time.Nanosecond, address)
		}))
		check(ln.Close())
		r.note("Dial to a port without a listener", timed(func() error { return r.dial(context.Background(), 0, address) }))
		r.note("Dial of an unknown network", timed(func() error {
			_, err := r.Dialer(0).Dial("nothing", address)
			var unknown net.UnknownNetworkError
			if errors.As(err, &unknown) {
				return unknown
			}
			return err
		}))
	}},
}

func (r *run) dial(ctx context.Context, timeout time.Duration, address string) error {
	c, err := r.Dialer(timeout).DialContext(ctx, "tcp", address)
	if err == nil {
		c.Close()
	}
	return err
}

// mirrored reports whether the local address of each end is the remote address of the other.
func mirrored(c, s net.Conn) bool {
	return c.LocalAddr().String() == s.RemoteAddr().String() && c.RemoteAddr().String() == s.LocalAddr().String()
}
