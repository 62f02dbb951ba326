// This file is part of package sdp only inside package net.

package sdp

import (
	"context"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/listener"
)

// Under returns the TCP connection below c.
func (c *Conn) Under() net.Conn { return c.conn.tcp }

// SharedListener acts like NewListener with the default Config, for a socket from which other processes
// may accept too: see FileListener.
func SharedListener(ln net.Listener) (*Listener, error) { return wrap(ln, nil, listener.NewOnDemand) }

// OnDemand makes l accept connections only while the program waits in Accept, as File does.
func (l *Listener) OnDemand() { l.l.OnDemand() }

// Getenv returns an environment variable, or "" in a program that has more rights than its caller.
func Getenv(name string) string { return getenv(name) }

// Hide removes the mark of a listener of SDP from a socket. A connection that was accepted has it too.
// There it would mislead a copy of the library in the program that is given the connection.
func Hide(c any) {
	if sc, ok := c.(syscall.Conn); ok {
		if rc, err := sc.SyscallConn(); err == nil {
			localpeer.Unmark(rc, localpeer.Listener)
		}
	}
}

// ReadsItself reports whether WriteTo would call w's ReadFrom. Package net has to do that itself, and pass
// a connection of its own.
func ReadsItself(w io.Writer) bool { return readsItself(w) }

// MarksMultipath reports whether a listener of multipath TCP can be marked.
func MarksMultipath() bool { return localpeer.MarksMultipath() }

// CloseAll closes all connections, and waits for at most d until they have delivered what their
// Writes have accepted. Connections over shm need neither; see docs/exit.md.
func CloseAll(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		var open []*conn
		openConns.mu.Lock()
		for c := range openConns.open {
			if c.device != "shm" {
				open = append(open, c)
			}
		}
		openConns.mu.Unlock()
		if len(open) == 0 {
			return
		}
		done := make(chan struct{}, len(open))
		for _, c := range open {
			go func() {
				c.Close()
				done <- struct{}{}
			}()
		}
		for range open {
			<-done
		}
		WaitClosed(ctx)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
