//go:build linux

package stream

import "sync/atomic"

// polled is whether the program waits on the connection's descriptor, which then must become readable. That is possible
// once it has got the descriptor from Control, although most programs only set or get an option there. One that polls
// calls Read when something has arrived; one whose Reads mostly wait for something does not poll. If it does both, a
// connection that has moved comes home when bytes wait in the ring and no Read does, and then stays there.
type polled struct {
	reads atomic.Int32 // how many more Reads must wait, notPolled, or 0: the program has not got the descriptor
}

const (
	notPolled    int32 = -1 // the program has got the descriptor, and does not wait on it
	doubtedReads int32 = 16
)

func (p *polled) yes() bool { return p.reads.Load() > 0 }

// suspect notes that the program has got the descriptor.
func (p *polled) suspect() {
	p.reads.Store(doubtedReads)
}

// read notes a Read, and whether it has waited. The caller holds rmu.
func (p *polled) read(waited bool) {
	switch n := p.reads.Load(); {
	case n <= 0:
	case !waited:
		p.reads.CompareAndSwap(n, min(n+1, doubtedReads))
	case n == 1:
		p.reads.CompareAndSwap(n, notPolled)
	default:
		p.reads.CompareAndSwap(n, n-1)
	}
}

// asked reports whether the program has got the descriptor.
func (p *polled) asked() bool { return p.reads.Load() != 0 }
