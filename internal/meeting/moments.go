//go:build linux

package meeting

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Moments are when the first Reads and Writes of a connection took place, for ends that meet in a directory. Both ends use
// the clock of their host, so no byte may have been read before it was written. That tells connections with the
// same bytes apart. A nil *Moments notes nothing. One Read and one Write may be noted at a time.
type Moments struct{ reads, writes moments }

const (
	mostMoments = 8
	momentsLen  = mostMoments * (8 + 8)
)

// moment is a position in the stream, and a time: for a Write that before it wrote from there on, for a Read that after it
// had read up to there. The zero moment is true of every connection.
type moment struct{ pos, at uint64 }

// moments are written with the lock of their direction, before n.
type moments struct {
	n  atomic.Uint32
	at [mostMoments]moment
}

// Read notes that the program has read pos bytes.
func (m *Moments) Read(pos uint64) {
	if m != nil {
		m.reads.note(pos)
	}
}

// Write notes that the program will write, after pos bytes.
func (m *Moments) Write(pos uint64) {
	if m != nil {
		m.writes.note(pos)
	}
}

// few reports whether there are too few moments to tell connections apart.
func (m *Moments) few() bool { return m == nil || m.reads.n.Load()+m.writes.n.Load() < mostMoments }

func (m *moments) note(pos uint64) {
	n := m.n.Load()
	if n == mostMoments {
		return
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		m.at[n] = moment{pos, uint64(now.Nano())}
		m.n.Store(n + 1)
	}
}

// list returns what was noted.
func (m *moments) list() (all [mostMoments]moment) {
	copy(all[:], m.at[:m.n.Load()])
	return all
}

func appendMoments(b []byte, all [mostMoments]moment) []byte {
	for _, m := range all {
		b = binary.NativeEndian.AppendUint64(b, m.pos)
		b = binary.NativeEndian.AppendUint64(b, m.at)
	}
	return b
}

func momentsOf(b []byte) (all [mostMoments]moment) {
	for i := range all {
		all[i] = moment{binary.NativeEndian.Uint64(b[16*i:]), binary.NativeEndian.Uint64(b[16*i+8:])}
	}
	return all
}

// causal reports whether the reads may be those of what was written.
func causal(writes, reads [mostMoments]moment) bool {
	for _, w := range writes {
		for _, r := range reads {
			if r.pos > w.pos && r.at < w.at {
				return false
			}
		}
	}
	return true
}
