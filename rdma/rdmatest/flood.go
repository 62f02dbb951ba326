package rdmatest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var floodChecks = []check{
	{"Both", checkFloodBoth},
	{"OneGoroutineEach", checkFloodSingle},
}

// Both ends send as fast as they can, and also read and write each other's memory. Nothing is lost
// and no call waits forever.
func checkFloodBoth(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	seed := newSeed(t)
	am := newMixture(a, b, seed)
	bm := newMixture(b, a, seed+4)
	for _, m := range []*mixture{am, bm} {
		back := am
		if m == am {
			back = bm
		}
		m.flow.from.pump(func(c rdma.Completion) {
			if c.Op == rdma.OpReceive {
				back.flow.receive(c)
			} else {
				m.completed(c)
			}
		})
	}
	together(t, am.flow.send, bm.flow.send, am.flow.wait, bm.flow.wait)
	for _, m := range []*mixture{am, bm} {
		checkMemory(t, "the target of "+m.flow.from.name, m.target.arena, m.want)
		checkMargins(t, "the source of "+m.flow.from.name, m.source.arena)
	}
}

// mixture is a flow with Reads and Writes in between.
type mixture struct {
	flow           *flow
	rng            *rand.Rand
	source, target exposed // at the peer
	want           []byte  // what the target's arena must hold
	idle           chan *slot
	slots          []*slot
}

// slot is the target of one Read at a time.
type slot struct {
	id    uint64
	mem   []byte
	local []byte // the part of mem in use
	at    int
}

const mixtureSize = 1 << 20

func newMixture(from, to *end, seed uint64) *mixture {
	m := &mixture{
		flow:   newFlow(from, to, seed, 1<<30, repeat((64<<20)/lighter), from.size, window),
		rng:    newRand(seed + 2),
		source: to.expose(mixtureSize, rdma.RemoteRead),
		target: to.expose(mixtureSize, rdma.RemoteWrite),
		idle:   make(chan *slot, 4),
	}
	copy(m.source.mem, contents(0, mixtureSize))
	m.want = bytes.Clone(m.target.arena)
	for i := range cap(m.idle) {
		s := &slot{id: uint64(i), mem: make([]byte, mixtureSize/4)}
		m.slots = append(m.slots, s)
		m.idle <- s
	}
	m.flow.aside = m.interfere
	return m
}

// interfere posts a Read or Write now and then.
func (m *mixture) interfere() error {
	e := m.flow.from
	at := m.rng.IntN(mixtureSize)
	size := m.rng.IntN(min(mixtureSize/4, mixtureSize-at))
	var err error
	switch m.rng.IntN(16 / lighter) {
	case 0:
		select {
		case s := <-m.idle:
			s.local, s.at = s.mem[:size], at
			err = e.PostRead(rdma.ReadWR{ID: s.id, Local: s.local, STag: m.source.STag, VA: m.source.VA + uint64(at)})
			if err != nil {
				m.idle <- s
			}
		default:
		}
	case 1:
		local := contents(0, mixtureSize)[at : at+size]
		err = e.PostWrite(rdma.WriteWR{Local: local, STag: m.target.STag, VA: m.target.VA + uint64(at)})
		if err == nil {
			copy(m.want[margin+at:], local)
		}
	}
	e.carry()
	if errors.Is(err, rdma.ErrNoRoom) {
		return nil
	}
	return err
}

// completed checks a Read and makes its slot available.
func (m *mixture) completed(c rdma.Completion) {
	if c.Op != rdma.OpRead {
		return
	}
	s := m.slots[c.ID]
	checkMemory(m.flow.from.t, fmt.Sprintf("Read of %d bytes at %d", len(s.local), s.at),
		s.local, contents(0, mixtureSize)[s.at:s.at+len(s.local)])
	m.idle <- s
}

// The same with one goroutine at each end, which never parks: it posts as much as it may, then calls
// Poll.
func checkFloodSingle(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	seed := newSeed(t)
	ab := newFlow(a, b, seed, 1<<30, repeat((16<<20)/lighter), a.size, window)
	ba := newFlow(b, a, seed+2, 1<<30, repeat((16<<20)/lighter), b.size, window)
	together(t,
		func() error { return floodSingle(ab, ba) },
		func() error { return floodSingle(ba, ab) })
}

// floodSingle sends all of out and receives all of in.
func floodSingle(out, in *flow) error {
	e := out.from
	var wcs [8]rdma.Completion
	next := out.script.next()
	received := false
	for next != nil || !received {
		for next != nil && len(out.credit) < cap(out.credit) {
			wrs := []rdma.SendWR{message(next, 16)}
			n, err := e.PostSend(wrs)
			scribble(wrs[:n])
			if err != nil && !errors.Is(err, rdma.ErrNoRoom) {
				return err
			}
			e.carry()
			if n == 0 {
				break
			}
			out.credit <- struct{}{}
			next = out.script.next()
		}
		n, err := e.Poll(wcs[:])
		if err != nil {
			return err
		}
		for _, c := range wcs[:n] {
			in.receive(c)
		}
		select {
		case <-in.received:
			received = true
		default:
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	return nil
}
