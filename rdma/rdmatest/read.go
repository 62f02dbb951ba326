package rdmatest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var readChecks = []check{
	{"Sizes", checkReadSizes},
	{"ORD", checkORD},
	{"BothWays", checkReadBothWays},
	{"Unfetched", checkUnfetched},
}

// Reads of every size and alignment fetch what is there when they are posted, and change nothing
// except Local.
func checkReadSizes(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect() // this is all that an end has to do to be read from
	x := transfers{e: a}
	source := b.expose(most+64, rdma.RemoteRead)
	for i, n := range seams {
		for _, at := range []int{0, 1 + i, most - n} {
			copy(source.mem[at:at+n], contents(uint64(i+at), n)) // others than before
			arena, local := embed(n)
			must(t, x.read(local, source.STag, source.VA+uint64(at), nil))
			must(t, x.finish())
			what := fmt.Sprintf("%d bytes from %d", n, at)
			checkMemory(t, what, local, source.mem[at:at+n])
			checkMargins(t, what, arena)
			if n == most {
				break // the other offsets only add time
			}
		}
	}
}

// ORD Reads may be outstanding. A further one gets ErrNoRoom until one of them has completed.
func checkORD(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const size = 10_000
	ord := a.Limits().ORD
	if ird := b.Limits().IRD; ord < 1 || ord > ird {
		t.Fatalf("ORD is %d, and the peer's IRD %d", ord, ird)
	}
	source := b.expose(size, rdma.RemoteRead)
	copy(source.mem, contents(0, size))
	locals := make([][]byte, ord+1)
	post := func(i int) error {
		locals[i] = make([]byte, size)
		return a.PostRead(rdma.ReadWR{ID: uint64(i), Local: locals[i], STag: source.STag, VA: source.VA})
	}
	completed := func(i int) {
		t.Helper()
		c, err := a.take(a.work)
		must(t, err)
		if c.Op != rdma.OpRead || c.ID != uint64(i) {
			t.Fatalf("completion of operation %d, ID %d, want Read %d", c.Op, c.ID, i)
		}
		checkMemory(t, fmt.Sprintf("Read %d", i), locals[i], source.mem)
	}
	for i := range ord {
		if err := post(i); err != nil {
			t.Fatalf("Read %d of the %d that may be outstanding: %v", i+1, ord, err)
		}
	}
	for range 3 {
		if err := post(ord); !errors.Is(err, rdma.ErrNoRoom) {
			t.Fatalf("Read %d with an ORD of %d: %v, want ErrNoRoom", ord+1, ord, err)
		}
	}
	a.carry()
	a.collect()
	b.collect()
	completed(0)
	must(t, post(ord))
	a.carry()
	for i := range ord {
		completed(i + 1)
	}
}

// Both ends keep as many Reads outstanding as they may.
func checkReadBothWays(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const size, times = 1 << 20, 200 / lighter
	seed := newSeed(t)
	ends := []*end{a, b}
	sources := []exposed{b.expose(size, rdma.RemoteRead), a.expose(size, rdma.RemoteRead)}
	var reading []func() error
	for i, e := range ends {
		e.collect()
		source := sources[i]
		copy(source.mem, contents(uint64(i), size))
		reading = append(reading, func() error {
			x, rng := transfers{e: e}, newRand(seed+uint64(i))
			for range times {
				at := rng.IntN(size)
				local := make([]byte, 1+rng.IntN(min(size-at, size/4)))
				err := x.read(local, source.STag, source.VA+uint64(at), func() error {
					if !bytes.Equal(local, contents(uint64(i), size)[at:at+len(local)]) {
						return fmt.Errorf("%s: Read of %d bytes at %d fetched others", e.name, len(local), at)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return x.finish()
		})
	}
	together(t, reading...)
}

// An end whose responses the peer does not fetch keeps receiving, and its Poll keeps returning.
func checkUnfetched(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const each = most / 2
	count := min(a.Limits().ORD, 8) // more than a TCP connection holds if nothing is fetched
	source := b.expose(each, rdma.RemoteRead)
	copy(source.mem, contents(0, each))
	locals := make([][]byte, count)
	for i := range locals {
		locals[i] = make([]byte, each)
		must(t, a.PostRead(rdma.ReadWR{ID: uint64(i), Local: locals[i], STag: source.STag, VA: source.VA}))
	}
	a.carry()
	for k := range uint64(window) {
		a.send(contents(k, 1000))
	}
	var wcs [4]rdma.Completion
	for k := uint64(0); k < window; {
		n, err := b.Poll(wcs[:])
		must(t, err)
		for _, c := range wcs[:n] {
			checkMemory(t, fmt.Sprintf("message %d", k), c.Buffer.Bytes, contents(k, 1000))
			c.Buffer.Release()
			k++
		}
	}
	b.collect()
	a.collect()
	for i, local := range locals {
		c, err := a.take(a.work)
		must(t, err)
		if c.ID != uint64(i) {
			t.Fatalf("Read %d completed before Read %d", c.ID, i)
		}
		checkMemory(t, fmt.Sprintf("Read %d", i), local, source.mem)
	}
}
