// Package budget accounts for the memory that the connections of a process have
// promised to their peers, as tcp_mem does for a kernel.
//
// A connection charges memory when it promises it, not when the memory is used: a
// promise cannot be withdrawn. Every connection gets a small promise in any case
// (Charge), so that both ends can make progress when the budget is used up. What goes
// beyond that has to fit (Take).
package budget

import (
	"math"
	"sync/atomic"
)

// Process is the budget of this process. Its limit is Default until SetLimit.
var Process Budget

// Budget is a number of bytes that connections share. The zero value has the default
// limit. Safe for concurrent use; it takes no lock.
type Budget struct {
	limit atomic.Int64 // 0: Default
	used  atomic.Int64
}

// shares is how many parts the budget has, of which one connection gets one at most.
const shares = 8

// Limit returns how many bytes may be promised in all.
func (b *Budget) Limit() int64 {
	if n := b.limit.Load(); n != 0 {
		return n
	}
	return Default()
}

// SetLimit sets the limit, in bytes; 0 means Default. What has been promised stays
// promised: if it is more than the limit, nothing grows until enough has been given
// back.
func (b *Budget) SetLimit(bytes int64) { b.limit.Store(max(0, bytes)) }

// Share returns the most that one connection may promise, in bytes.
func (b *Budget) Share() int { return int(min(b.Limit()/shares, math.MaxInt32)) }

// Used returns how many bytes are promised.
func (b *Budget) Used() int64 { return b.used.Load() }

// Charge accounts for bytes that are promised whatever the limit says.
func (b *Budget) Charge(bytes int) { b.used.Add(int64(bytes)) }

// Take accounts for bytes if the limit allows them, and reports whether it does.
func (b *Budget) Take(bytes int) bool { return b.take(bytes, b.Limit()) }

// TakeSpare is Take for what is less urgent: it leaves half of the budget to others.
func (b *Budget) TakeSpare(bytes int) bool { return b.take(bytes, b.Limit()/2) }

// Tight reports that half of the budget is taken.
func (b *Budget) Tight() bool { return b.used.Load() > b.Limit()/2 }

func (b *Budget) take(bytes int, limit int64) bool {
	for {
		used := b.used.Load()
		if used+int64(bytes) > limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+int64(bytes)) {
			return true
		}
	}
}

// Give returns bytes that were charged or taken. It panics if more is returned than
// there was: the accounts are wrong then, and would never be right again.
func (b *Budget) Give(bytes int) {
	if left := b.used.Add(-int64(bytes)); left < 0 {
		panic("budget: more was given back than was taken")
	}
}
