//go:build linux

package verbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// registry is a device that only records registrations.
type registry struct {
	mu         sync.Mutex
	registered map[*registered]bool
	made       int // in total
	most       int // bytes that may be registered; 0: any
	bytes      int
}

// registered is the record of one registration. Like a device, it does not keep the memory alive.
type registered struct {
	base  uintptr
	size  int
	use   use
	bytes []byte // the contents of the memory
}

func newRegistry() *registry { return &registry{registered: make(map[*registered]bool)} }

func (d *registry) register(b []byte, u use) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.most > 0 && d.bytes+len(b) > d.most {
		return nil, syscall.ENOMEM
	}
	mr := &registered{base: baseOf(b), size: len(b), use: u, bytes: append([]byte(nil), b[:min(8, len(b))]...)}
	d.registered[mr] = true
	d.made++
	d.bytes += len(b)
	return mr, nil
}

func (d *registry) deregister(mr any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := mr.(*registered)
	if !d.registered[r] {
		panic("deregistered twice")
	}
	delete(d.registered, r)
	d.bytes -= r.size
	return nil
}

// now returns how many registrations there are, and how many there have been.
func (d *registry) now() (n, made int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.registered), d.made
}

func baseOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// newTestCache returns a cache that is closed at the end of the test, and must be empty then.
func newTestCache(t testing.TB, b *budget) (*cache, *registry) {
	d := newRegistry()
	c := newCache(d, b)
	t.Cleanup(func() {
		c.close()
		n, _ := d.now()
		assert.Zero(t, n, "registrations are left")
		assert.NotContains(t, b.caches, c)
		if len(b.caches) == 0 {
			assert.Zero(t, b.kept)
		}
	})
	return c, d
}

// used calls get and put.
func used(t testing.TB, c *cache, b []byte, u use) *registered {
	t.Helper()
	r, err := c.get(b, u)
	require.NoError(t, err)
	mr := r.mr.(*registered)
	assert.True(t, mr.base <= baseOf(b) && baseOf(b)+uintptr(len(b)) <= mr.base+uintptr(mr.size), "the registration has not all of the memory")
	r.put()
	return mr
}

const (
	kilo = 1 << 10
	mega = 1 << 20
)

// A slice within registered memory is registered; one that reaches beyond it is not.
func TestCacheSubslices(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 64 * mega})
	b := make([]byte, 4*mega)
	whole := used(t, c, b[mega:3*mega], source)
	for _, part := range [][]byte{b[mega : 3*mega], b[mega : 2*mega], b[2*mega : 3*mega], b[mega+1 : 3*mega-1]} {
		assert.Same(t, whole, used(t, c, part, sink))
	}
	for _, part := range [][]byte{b[mega-1 : 2*mega], b[2*mega : 3*mega+1], b} {
		assert.NotSame(t, whole, used(t, c, part, source))
		assert.NotSame(t, whole, used(t, c, part, source))
	}
	_, made := d.now()
	assert.Equal(t, 4, made)
	assert.Equal(t, sink, whole.use, "what is kept serves both")
}

// Memory outside of Go's heap is registered for one transfer, with the rights that this needs.
func TestCacheForeign(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 64 * mega})
	mapped, err := unix.Mmap(-1, 0, mega, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(mapped)
	for name, b := range map[string][]byte{
		"mapped":    mapped,
		"read-only": unsafe.Slice(unsafe.StringData(constant), len(constant)),
		"global":    global[:],
	} {
		t.Run(name, func(t *testing.T) {
			_, before := d.now()
			for range 3 {
				assert.Equal(t, source, used(t, c, b, source).use)
				n, _ := d.now()
				assert.Zero(t, n)
			}
			_, after := d.now()
			assert.Equal(t, 3, after-before)
		})
	}
	assert.Equal(t, exposed, used(t, c, make([]byte, mega), exposed).use, "what the peer may write")
	n, _ := d.now()
	assert.Zero(t, n)
}

const (
	line     = "what is in the program's file cannot be written, nor freed......"
	lines    = line + line + line + line + line + line + line + line
	page     = lines + lines + lines + lines + lines + lines + lines + lines
	constant = page + page + page + page
)

var global [leastKept]byte

// Memory that was freed and allocated again is not accessed through its former registration, however
// late the cleanup runs.
func TestCacheReusedMemory(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 64 * mega})
	before := func() *registered {
		b := make([]byte, 2*mega)
		copy(b, "before")
		mr := used(t, c, b, source)
		c.kept[0].cleanup.Stop() // it will never run
		return mr
	}()
	for c.kept[0].memory.Value() != nil {
		runtime.GC()
	}
	b := make([]byte, 2*mega)
	c.kept[0].base = baseOf(b) // as if the runtime had used the memory again
	copy(b, "after")
	n, _ := d.now()
	require.Equal(t, 1, n, "the stale registration is still there")
	now := used(t, c, b, source)
	require.NotSame(t, before, now)
	require.Contains(t, string(now.bytes), "after")
	assert.Same(t, now, used(t, c, b[leastKept:], source))
}

// A cleanup ends the registration after the memory was freed.
func TestCacheCleanup(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 64 * mega})
	for range 4 {
		used(t, c, make([]byte, mega), source)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		n, _ := d.now()
		return n == 0
	}, patience, time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Zero(t, c.budget.kept)
	assert.Empty(t, c.kept)
}

// A registration does not keep memory alive. One whose memory was freed is evicted before others.
func TestCacheEvictsWhatIsGone(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 3 * mega})
	a, b := make([]byte, mega), make([]byte, mega)
	used(t, c, a, source)
	func() {
		used(t, c, make([]byte, mega), source)
		c.kept[1].cleanup.Stop()
	}()
	used(t, c, b, source)
	runtime.GC()
	runtime.GC() // sweeps what the first has marked
	used(t, c, make([]byte, mega), source)
	_, made := d.now()
	used(t, c, a, source)
	used(t, c, b, source)
	_, after := d.now()
	assert.Equal(t, made, after, "a and b are still there")
}

// At the limit the least recently used registration is evicted.
func TestCacheEvictsOldest(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 3 * mega})
	bufs := [4][]byte{}
	for i := range bufs {
		bufs[i] = make([]byte, mega)
	}
	for _, b := range bufs[:3] {
		used(t, c, b, source)
	}
	used(t, c, bufs[0], source)
	used(t, c, bufs[3], source) // replaces 1
	n, made := d.now()
	assert.Equal(t, 3, n)
	for _, i := range []int{0, 2, 3} {
		used(t, c, bufs[i], source)
	}
	_, after := d.now()
	assert.Equal(t, made, after)
	used(t, c, bufs[1], source)
	_, after = d.now()
	assert.Equal(t, made+1, after)

	// Memory larger than the limit is not kept, and evicts nothing.
	used(t, c, make([]byte, 4*mega), source)
	n, _ = d.now()
	assert.Equal(t, 3, n)
	runtime.KeepAlive(bufs)
}

// Registrations in use are not evicted; new memory is registered for one transfer.
func TestCacheKeepsWhatIsInUse(t *testing.T) {
	limit := &budget{limit: 2 * mega}
	c, d := newTestCache(t, limit)
	other, _ := newTestCache(t, limit)
	a, b := make([]byte, mega), make([]byte, mega)
	inUse, err := c.get(a, source)
	require.NoError(t, err)
	again, err := c.get(a, source)
	require.NoError(t, err)
	assert.Same(t, inUse, again)
	used(t, other, b, source)
	used(t, c, b, source) // evicts the other connection's
	assert.Empty(t, other.kept)
	second, err := c.get(b, source)
	require.NoError(t, err)
	third, err := c.get(make([]byte, mega), source)
	require.NoError(t, err)
	assert.True(t, third.once)
	third.put()
	inUse.put()
	assert.True(t, c.evict() == false, "both are in use")
	again.put()
	assert.True(t, c.evict())
	n, _ := d.now()
	assert.Equal(t, 1, n)
	second.put()
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

// If no more memory may be locked, registrations that are not in use are evicted, on every
// connection. If there are none, get fails with an error that says so.
func TestCacheMemoryLimit(t *testing.T) {
	limit := &budget{limit: 64 * mega}
	c, d := newTestCache(t, limit)
	other, _ := newTestCache(t, limit)
	other.device = d
	d.most = 4 * mega
	bufs := [][]byte{make([]byte, mega), make([]byte, mega), make([]byte, mega)}
	used(t, other, bufs[0], source)
	used(t, c, bufs[1], source)
	inUse, err := c.get(bufs[2], source)
	require.NoError(t, err)
	used(t, c, make([]byte, 3*mega), exposed)
	n, _ := d.now()
	assert.Equal(t, 1, n)
	for _, u := range []use{source, exposed} {
		_, err = c.get(make([]byte, 4*mega), u)
		assert.Equal(t, syscall.ENOMEM, err)
	}
	inUse.put()
	assert.Equal(t, mega, limit.kept, "what failed is not counted")
	runtime.KeepAlive(bufs)
}

// A connection keeps at most mostKept registrations.
func TestCacheManySmall(t *testing.T) {
	c, d := newTestCache(t, &budget{limit: 64 * mega})
	b := make([]byte, 2*mostKept*leastKept)
	for i := range 2 * mostKept {
		used(t, c, b[i*leastKept:][:leastKept], source)
	}
	n, _ := d.now()
	assert.Equal(t, mostKept, n)
	used(t, c, b[:leastKept-1], source)
	n, _ = d.now()
	assert.Equal(t, mostKept, n, "less is not worth it")
	runtime.KeepAlive(b)
}

// Transfers, evictions, the collector and other connections run concurrently.
func TestCacheConcurrently(t *testing.T) {
	limit := &budget{limit: 4 * mega}
	c, d := newTestCache(t, limit)
	other, _ := newTestCache(t, limit)
	d.most = 16 * mega
	shared := make([]byte, 2*mega)
	var group, stirring sync.WaitGroup
	var over atomic.Bool
	stirring.Go(func() {
		for !over.Load() {
			runtime.GC()
			c.evict()
		}
	})
	for g := range 4 {
		group.Go(func() {
			own := make([]byte, mega)
			for i := range 500 {
				b := own
				switch i % 4 {
				case 1:
					b = shared[g*leastKept:][:mega]
				case 2:
					b = make([]byte, mega/2)
				}
				where := c
				if i%16 == 3 {
					where = other
				}
				r, err := where.get(b, source)
				if !assert.NoError(t, err) {
					return
				}
				mr := r.mr.(*registered)
				if where == c {
					d.mu.Lock()
					assert.True(t, d.registered[mr], "in use and not registered")
					d.mu.Unlock()
				}
				r.put()
				runtime.KeepAlive(b)
			}
		})
	}
	group.Wait()
	over.Store(true)
	stirring.Wait()
}

// The runtime keeps a record for each byte to which a weak pointer was made. There are few,
// whatever slices of an allocation are used.
func TestAnchor(t *testing.T) {
	b := make([]byte, mega)
	anchors := make(map[*byte]bool)
	for at := 0; at+leastKept <= len(b); at += 1001 {
		part := b[at : at+leastKept]
		p := anchor(part)
		require.True(t, uintptr(unsafe.Pointer(p)) >= baseOf(part) && uintptr(unsafe.Pointer(p)) < baseOf(part)+leastKept)
		anchors[p] = true
	}
	assert.LessOrEqual(t, len(anchors), 2*mega/leastKept+1)
	for size := 1; size < 70; size++ {
		for at := range 70 {
			part := b[at : at+size]
			p := uintptr(unsafe.Pointer(anchor(part)))
			require.True(t, p >= baseOf(part) && p < baseOf(part)+uintptr(size), "%d bytes at %d", size, at)
		}
	}
}

// A hit allocates nothing.
func TestAllocsCache(t *testing.T) {
	c, _ := newTestCache(t, &budget{limit: 64 * mega})
	b := make([]byte, mega)
	used(t, c, b, source)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r, err := c.get(b[kilo:], sink)
		if err != nil {
			panic(err)
		}
		r.put()
	}))
}
