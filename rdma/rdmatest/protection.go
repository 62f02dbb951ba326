package rdmatest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var protectionChecks = slices.Concat(
	offenceChecks("Write", write, rdma.RemoteWrite, rdma.RemoteRead),
	offenceChecks("Read", read, rdma.RemoteRead, rdma.RemoteWrite),
	[]check{
		{"OtherConnection", checkOtherConnection},
		{"STags", checkSTags},
	},
)

// attempt posts a Write from or a Read into local.
type attempt func(e *end, local []byte, s rdma.STag, va uint64) error

func write(e *end, local []byte, s rdma.STag, va uint64) error {
	return e.PostWrite(rdma.WriteWR{ID: 1, Local: local, STag: s, VA: va})
}

func read(e *end, local []byte, s rdma.STag, va uint64) error {
	return e.PostRead(rdma.ReadWR{ID: 1, Local: local, STag: s, VA: va})
}

// exposedSize is what the victim exposes: more than two FPDUs, so that a longer access may do part of
// its work before it violates the bounds.
const exposedSize = 150_000

// offence is an access that the victim has not allowed.
type offence struct {
	name string
	size int
	// aim returns the access, given what is exposed.
	aim func(r rdma.Region) (rdma.STag, uint64)
	// partly: the access may have changed some of what is exposed.
	partly bool
}

var offences = []offence{
	{"UnknownSTag", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag ^ 0x5A5A5A5A, r.VA }, false},
	{"NextSTag", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag + 1, r.VA }, false},
	{"NoSTag", 100, func(r rdma.Region) (rdma.STag, uint64) { return 0, r.VA }, false},
	{"OneBefore", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA - 1 }, false},
	{"OneAfter", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA + exposedSize - 99 }, false},
	{"JustAfter", 1, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA + exposedSize }, false},
	{"JustBefore", 1, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA - 1 }, false},
	{"OneMore", exposedSize + 1, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA }, true},
	{"MuchMore", 1 << 20, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA }, true},
	{"FarAway", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA + 1<<40 }, false},
	{"WrapsAround", exposedSize, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, ^uint64(0) - 10 }, false},
	{"EndsAtTheTop", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, ^uint64(99) }, false},
	{"WrapsInto", 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA - 50 }, false},
}

// offenceChecks are that each access which the victim has not allowed ends the pair, and has no effect
// outside of what was allowed.
func offenceChecks(operation string, try attempt, right, wrong rdma.Access) []check {
	var checks []check
	add := func(o offence, target func(t *testing.T, b *end) exposed) {
		checks = append(checks, check{operation + "/" + o.name, func(t *testing.T, pair Pair) {
			a, b := connect(t, pair)
			checkOffence(a, b, o, try, target(t, b))
		}})
	}
	for _, o := range offences {
		add(o, func(_ *testing.T, b *end) exposed { return b.expose(exposedSize, right) })
	}
	add(inside("NoRight"), func(t *testing.T, b *end) exposed {
		target := b.expose(exposedSize, wrong)
		// The same memory, exposed with that right under another STag, changes nothing.
		_, err := b.Register(target.mem, right)
		must(t, err)
		return target
	})
	add(inside("Invalidated"), func(t *testing.T, b *end) exposed {
		target := b.expose(exposedSize, right)
		b.Invalidate(target.STag)
		again, err := b.Register(target.mem, right)
		must(t, err)
		if again.STag == target.STag {
			t.Errorf("STag %#x is used again at once", again.STag)
		}
		return target
	})
	return checks
}

// inside is an access within the bounds.
func inside(name string) offence {
	return offence{name, 100, func(r rdma.Region) (rdma.STag, uint64) { return r.STag, r.VA + 10 }, false}
}

// checkOffence lets a commit an offence against b's memory.
func checkOffence(a, b *end, o offence, try attempt, target exposed) {
	t := a.t
	t.Helper()
	a.collect()
	b.collect()
	s, va := o.aim(target.Region)
	arena, local := embed(o.size)
	before := bytes.Clone(target.arena)
	a.send([]byte("before"))
	must(t, try(a, local, s, va))
	a.carry()
	b.expect([]byte("before"))
	expectViolation(b, a)
	if o.partly {
		checkMargins(t, "the victim's memory", target.arena)
	} else {
		checkMemory(t, "the victim's memory", target.arena, before)
	}
	checkMargins(t, "the offender's memory", arena)
	if bytes.IndexByte(local, canary) >= 0 {
		t.Error("the offender has read what was not exposed")
	}
}

// A region of one connection is unknown on another.
func checkOtherConnection(t *testing.T, pair Pair) {
	for _, try := range []attempt{write, read} {
		a, b := connect(t, pair)
		_, other := connect(t, pair)
		checkOffence(a, b, inside("OtherConnection"), try,
			other.expose(exposedSize, rdma.RemoteRead|rdma.RemoteWrite))
	}
}

// STags cannot be guessed from others. This check finds counters, not weak generators.
func checkSTags(t *testing.T, pair Pair) {
	a, _ := connect(t, pair)
	const count = 512
	mem := make([]byte, count)
	stags := map[rdma.STag]bool{}
	steps := map[rdma.STag]int{}
	var last, least, greatest rdma.STag
	least = ^least
	for i := range count {
		r, err := a.Register(mem[i:i+1], rdma.RemoteRead)
		must(t, err)
		if stags[r.STag] {
			t.Fatalf("STag %#x names two regions", r.STag)
		}
		stags[r.STag] = true
		steps[r.STag-last]++
		last, least, greatest = r.STag, min(least, r.STag), max(greatest, r.STag)
	}
	for step, times := range steps {
		if times > count/8 {
			t.Errorf("%d of %d STags follow the one before by %#x", times, count, step)
		}
	}
	if spread := greatest - least; spread < 1<<24 {
		t.Errorf("%d STags lie within %#x of each other", count, spread)
	}
}
