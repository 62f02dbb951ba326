// Package budget accounts for the memory that the connections of a process have
// promised to their peers, like the kernel's tcp_mem.
//
// A connection charges memory when it promises it, not when the memory is used,
// because a promise cannot be withdrawn. A connection for which there is no room stays on TCP.
package budget

import "sync/atomic"

// Process is the budget of this process. Its limit is Default until SetLimit is called.
var Process Budget

// Budget is a number of bytes that connections share. The zero value has the default
// limit. It is safe for concurrent use and takes no lock.
type Budget struct {
	limit atomic.Int64 // 0 means Default
	used  atomic.Int64
}

// shares divides the budget: a connection may promise at most 1/shares of it.
const shares = 8

// Limit returns how many bytes may be promised in total.
func (b *Budget) Limit() int64 {
	if n := b.limit.Load(); n != 0 {
		return n
	}
	return Default()
}

// SetLimit sets the limit in bytes; 0 means Default. It does not withdraw promises. If
// they exceed the limit, Take fails until enough has been given back.
func (b *Budget) SetLimit(bytes int64) { b.limit.Store(max(0, bytes)) }

// exceeds reports whether bytes are more than a part of the limit. It does not find out the default if the least one
// is enough.
func (b *Budget) exceeds(bytes int64, part int64) bool {
	if b.limit.Load() == 0 && bytes <= minLimit/part {
		return false
	}
	return bytes > b.Limit()/part
}

// Allows reports whether one connection may promise that many bytes.
func (b *Budget) Allows(bytes int) bool { return !b.exceeds(int64(bytes), shares) }

// Clip returns how many of these bytes one connection may promise.
func (b *Budget) Clip(bytes int) int {
	if b.Allows(bytes) {
		return bytes
	}
	return int(b.Limit() / shares)
}

// Used returns how many bytes are promised.
func (b *Budget) Used() int64 { return b.used.Load() }

// Charge accounts for promised bytes, whatever the limit is.
func (b *Budget) Charge(bytes int) { b.used.Add(int64(bytes)) }

// Take accounts for bytes if the limit allows it, and reports whether it did.
func (b *Budget) Take(bytes int) bool { return b.take(bytes, 1) }

// TakeSpare acts like Take but leaves half of the budget free. It is for less urgent promises.
func (b *Budget) TakeSpare(bytes int) bool { return b.take(bytes, 2) }

// Tight reports whether more than half of the budget is in use.
func (b *Budget) Tight() bool { return b.exceeds(b.used.Load(), 2) }

func (b *Budget) take(bytes int, part int64) bool {
	for {
		used := b.used.Load()
		if b.exceeds(used+int64(bytes), part) {
			return false
		}
		if b.used.CompareAndSwap(used, used+int64(bytes)) {
			return true
		}
	}
}

// Give returns bytes that were charged or taken. It panics if the total becomes
// negative, because the account is then wrong and would stay wrong.
func (b *Budget) Give(bytes int) {
	if left := b.used.Add(-int64(bytes)); left < 0 {
		panic("budget: more bytes given back than taken")
	}
}
