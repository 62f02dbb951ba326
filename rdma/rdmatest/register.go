package rdmatest

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

var registerChecks = []check{
	{"Concurrent", checkRegisterConcurrent},
}

const (
	registrars = 4  // goroutines that register concurrently
	regionSize = 64 // bytes of each region
)

// churned are the regions of b that a churn has registered and invalidated. Those that it has kept are
// next to each other in mem.
type churned struct {
	mem         []byte
	kept, ended []rdma.Region
}

// churn makes goroutines register regions of b and invalidate others concurrently, while a reads from
// one that stays.
func churn(a, b *end) churned {
	t := a.t
	t.Helper()
	const each = 32
	c := churned{
		mem:   bytes.Clone(contents(1, registrars*each*regionSize)),
		kept:  make([]rdma.Region, registrars*each),
		ended: make([]rdma.Region, registrars*each),
	}
	for i := range c.ended {
		c.ended[i] = b.expose(regionSize, rdma.RemoteRead).Region
	}
	source := b.expose(10_000, rdma.RemoteRead)
	copy(source.mem, contents(2, len(source.mem)))
	var running atomic.Int32
	running.Store(registrars)
	calls := []func() error{func() error {
		x, local := transfers{e: a}, make([]byte, len(source.mem))
		for running.Load() > 0 {
			if err := errors.Join(x.read(local, source.STag, source.VA, nil), x.finish()); err != nil {
				return err
			}
			checkMemory(t, "a region that stays", local, source.mem)
		}
		return nil
	}}
	for g := range registrars {
		calls = append(calls, func() (err error) {
			defer running.Add(-1)
			for i := g * each; i < (g+1)*each && err == nil; i++ {
				c.kept[i], err = b.Register(c.mem[i*regionSize:(i+1)*regionSize], rdma.RemoteRead)
				b.Invalidate(c.ended[i].STag)
			}
			// If this took microseconds, the goroutines would hardly run concurrently.
			for begin := time.Now(); err == nil && time.Since(begin) < moment/4; {
				var r rdma.Region
				r, err = b.Register(c.mem[:regionSize], rdma.RemoteRead)
				b.Invalidate(r.STag)
			}
			return err
		})
	}
	together(t, calls...)
	return c
}

// Regions that were registered concurrently all exist.
func checkRegisterConcurrent(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	c := churn(a, b)
	x := transfers{e: a}
	for i, r := range c.kept {
		local := make([]byte, regionSize)
		must(t, x.read(local, r.STag, r.VA, nil))
		must(t, x.finish())
		checkMemory(t, "a region", local, c.mem[i*regionSize:(i+1)*regionSize])
	}
}

// A region that was invalidated concurrently does not exist. On a device that loses changes, it is gone
// nevertheless if its own goroutine made the last change: one time in four. Eight looks find such a device.
func checkInvalidateWhileRegistering(t *testing.T, pair Pair) {
	for i := range 2 * registrars {
		g := i % registrars
		a, b := connect(t, pair)
		a.collect()
		b.collect()
		c := churn(a, b)
		local := make([]byte, regionSize)
		r := c.ended[(g+1)*len(c.ended)/registrars-1] // the last of a goroutine
		must(t, read(a, local, r.STag, r.VA))
		a.carry()
		expectViolation(b, a)
		checkMemory(t, "the offender's memory", local, make([]byte, regionSize))
	}
}
