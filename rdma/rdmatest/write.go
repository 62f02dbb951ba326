package rdmatest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var writeChecks = []check{
	{"Sizes", checkWriteSizes},
	{"BeforeSend", checkWriteBeforeSend},
	{"BothWays", checkWriteBothWays},
}

// Writes of every size and alignment put their bytes where they belong and nowhere else. Local is the
// writer's again with the completion.
func checkWriteSizes(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	x := transfers{e: a}
	target := b.expose(most+64, rdma.RemoteWrite)
	want, mem := embed(most + 64)
	for i, n := range seams {
		for _, at := range []int{0, 1 + i, most + 64 - n} {
			number := uint64(i + at)
			copy(mem[at:], contents(number, n))
			local := bytes.Clone(contents(number, n))
			must(t, x.write(local, target.STag, target.VA+uint64(at), func() error {
				wipe(local)
				return nil
			}))
			must(t, x.finish())
			a.send([]byte("written"))
			b.expect([]byte("written"))
			checkMemory(t, fmt.Sprintf("%d bytes at %d", n, at), target.arena, want)
			if n == most {
				break // the other offsets only add time
			}
		}
	}
}

// When a Send arrives, everything that was written before it is there, whatever else is under way.
func checkWriteBeforeSend(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const slots, size = 120, 60_001 // more than a transport holds
	target := b.expose(slots*size, rdma.RemoteWrite)
	f := newFlow(a, b, newSeed(t), slots, 1<<30, 100, window)
	x := transfers{e: a}
	written := 0
	seen := 0
	f.dispose = func(lent rdma.Buffer) {
		checkMemory(t, fmt.Sprintf("slot %d", seen), target.mem[seen*size:(seen+1)*size], contents(uint64(seen), size))
		seen++
		f.release(lent)
	}
	pumpFlow(f)
	a.collect()
	for msg := f.script.next(); msg != nil; msg = f.script.next() {
		must(t, x.write(contents(uint64(written), size), target.STag, target.VA+uint64(written*size), nil))
		written++
		must(t, f.acquire())
		must(t, a.post(message(msg, 64))) // often without payload, which a Busy device accepts too
	}
	must(t, f.wait())
	must(t, x.finish())
	checkMargins(t, "the target", target.arena)
}

// Both ends write at once, more than a transport holds.
func checkWriteBothWays(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const size, times = 1<<20 + 1, 4 + 12/lighter
	ends := []*end{a, b}
	targets := []exposed{b.expose(size*times, rdma.RemoteWrite), a.expose(size*times, rdma.RemoteWrite)}
	var writing []func() error
	for i, e := range ends {
		e.collect()
		writing = append(writing, func() error {
			x := transfers{e: e}
			for k := range uint64(times) {
				if err := x.write(contents(k, size), targets[i].STag, targets[i].VA+k*size, nil); err != nil {
					return err
				}
			}
			if err := x.finish(); err != nil {
				return err
			}
			return e.post(message([]byte("written"), 16))
		})
	}
	together(t, writing...)
	for i, e := range ends {
		e.expect([]byte("written"))
		target := targets[1-i]
		for k := range times {
			checkMemory(t, fmt.Sprintf("Write %d to %s", k, e.name), target.mem[k*size:(k+1)*size], contents(uint64(k), size))
		}
		checkMargins(t, "the target", target.arena)
	}
}
