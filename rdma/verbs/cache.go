package verbs

import (
	"errors"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
	"weak"
)

// cache keeps registrations of this end's own memory, the sources of its RDMA
// Writes and the sinks of its RDMA Reads, for the next transfer from or to there.
// What the peer may reach is never in it.
//
// Go gives freed memory back to the kernel without telling, and a registration
// reaches the pages that were there when it was made. So one is used only while
// its weak pointer yields the allocation in which it lies; that an address is the
// same says nothing. Cleanups come late, and only free. Memory that is not of Go's
// heap has neither, and is registered for one transfer.
//
// A cache is a connection's, as the protection domain is; what all of them keep
// together is bounded by a budget. mu guards everything but what is atomic; the
// budget's lock is below it.
type cache struct {
	device registrar
	budget *budget

	mu     sync.Mutex
	kept   []*registration
	turn   uint64
	closed bool
}

// registrar is what the cache asks of a device.
type registrar interface {
	// register returns what to deregister, and syscall.ENOMEM if no more memory may
	// be locked.
	register(b []byte, u use) (mr any, err error)
	deregister(mr any)
}

// use is what memory is registered for.
type use int

const (
	source  use = iota // of an RDMA Write
	sink               // of an RDMA Read
	exposed            // sink of an RDMA Read on iWARP, where the peer needs the right to write
)

const (
	// leastKept is how large memory has to be for its registration to be kept.
	leastKept = 16 << 10
	// mostKept is how many registrations a connection keeps.
	mostKept = 256
)

// registration is of memory that this end's device may reach.
type registration struct {
	cache *cache
	mr    any
	users atomic.Int32 // transfers that are under way
	once  bool         // for one transfer

	// Of one that is kept:
	base    uintptr
	size    int
	memory  weak.Pointer[byte]
	cleanup runtime.Cleanup
	used    uint64 // the turn of its last use
}

func newCache(device registrar, b *budget) *cache {
	c := &cache{device: device, budget: b}
	b.join(c)
	return c
}

// get returns a registration of b for one transfer, which calls put at its end.
// Until then the caller keeps b alive. The error is syscall.ENOMEM when no more
// memory may be locked, although nothing is kept that is not in use.
func (c *cache) get(b []byte, u use) (*registration, error) {
	if u == exposed || len(b) < leastKept {
		return c.getOnce(b, u)
	}
	if r := c.find(b); r != nil {
		return r, nil
	}
	r := &registration{cache: c, base: uintptr(unsafe.Pointer(unsafe.SliceData(b))), size: len(b)}
	if !r.watch(b) {
		return c.getOnce(b, u)
	}
	if !c.reserve(len(b)) {
		r.cleanup.Stop()
		return c.getOnce(b, u)
	}
	// As a sink, which Go's memory can always be, it serves both.
	var err error
	if r.mr, err = c.register(b, sink); err != nil {
		r.cleanup.Stop()
		c.budget.giveBack(len(b))
		return nil, err
	}
	c.keep(r)
	return r, nil
}

// getOnce registers b for one transfer.
func (c *cache) getOnce(b []byte, u use) (*registration, error) {
	mr, err := c.register(b, u)
	if err != nil {
		return nil, err
	}
	return &registration{cache: c, mr: mr, once: true}, nil
}

// register makes room once, if no more memory may be locked.
func (c *cache) register(b []byte, u use) (mr any, err error) {
	err = c.budget.lock(func() error {
		mr, err = c.device.register(b, u)
		return err
	})
	return mr, err
}

// put ends a transfer's use of the registration. It takes no lock: completions are
// not to wait for memory that is being registered.
func (r *registration) put() {
	if r.once {
		r.cache.device.deregister(r.mr)
		return
	}
	r.users.Add(-1)
}

// watch attaches a cleanup and a weak pointer to b's allocation, and reports whether
// there is one. AddCleanup comes first: of memory that is not Go's it panics, where
// weak.Make ends the program.
func (r *registration) watch(b []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	at := anchor(b)
	r.cleanup = runtime.AddCleanup(at, (*registration).freed, r)
	if r.cleanup == (runtime.Cleanup{}) {
		return false // a global variable
	}
	r.memory = weak.Make(at)
	return true
}

// anchor is the byte of b whose address is a multiple of the largest power of two.
// The runtime keeps a record of each byte of an allocation to which there was a weak
// pointer, for as long as that lives; so there are to be few.
func anchor(b []byte) *byte {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	last := first + uintptr(len(b)) - 1
	at := last &^ (1<<(bits.Len64(uint64((first-1)^last))-1) - 1)
	return &b[at-first]
}

// find returns a registration that is kept and has all of b in it.
func (c *cache) find(b []byte) *registration {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.kept {
		if base < r.base || base+uintptr(len(b)) > r.base+uintptr(r.size) || r.memory.Value() == nil {
			continue
		}
		// Where r lies its allocation lives, so b is a part of that.
		c.turn++
		r.used = c.turn
		r.users.Add(1)
		return r
	}
	return nil
}

// keep takes in a registration that is in use from now, for which there is room in
// the budget.
func (c *cache) keep(r *registration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.users.Add(1)
	if c.closed || len(c.kept) >= mostKept && !c.evictOne() {
		r.once = true
		r.cleanup.Stop()
		c.budget.giveBack(r.size)
		return
	}
	c.turn++
	r.used = c.turn
	c.kept = append(c.kept, r)
}

// reserve makes room for size bytes in the budget, and reports whether there is.
func (c *cache) reserve(size int) bool {
	if size > c.budget.limit {
		return false
	}
	for !c.budget.take(size) {
		c.mu.Lock()
		evicted := c.evictOne()
		c.mu.Unlock()
		if !evicted && !c.budget.evictOne(c) {
			return false
		}
	}
	return true
}

// evictOne drops the registration whose last use is the longest ago, of those that
// are not in use; one whose memory is gone goes first. Called with mu held.
func (c *cache) evictOne() bool {
	var oldest *registration
	for _, r := range c.kept {
		if r.users.Load() > 0 {
			continue
		}
		if r.memory.Value() == nil {
			oldest = r
			break
		}
		if oldest == nil || r.used < oldest.used {
			oldest = r
		}
	}
	if oldest == nil {
		return false
	}
	c.drop(oldest)
	return true
}

// evict drops all that is not in use, and reports whether there was anything.
func (c *cache) evict() (any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.evictOne() {
		any = true
	}
	return any
}

// freed is the cleanup: nobody has the memory any more, so nothing is in use.
func (r *registration) freed() {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	r.cache.drop(r)
}

// drop ends a registration, if it is still kept. Called with mu held.
func (c *cache) drop(r *registration) {
	for i, k := range c.kept {
		if k == r {
			last := len(c.kept) - 1
			c.kept[i], c.kept[last] = c.kept[last], nil
			c.kept = c.kept[:last]
			r.cleanup.Stop()
			c.device.deregister(r.mr)
			c.budget.giveBack(r.size)
			return
		}
	}
}

// close drops everything: no transfer is under way any more, nor begins.
func (c *cache) close() {
	c.budget.leave(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for len(c.kept) > 0 {
		c.drop(c.kept[0])
	}
}

// budget bounds what a process keeps registered without need, in bytes.
type budget struct {
	limit int

	mu     sync.Mutex
	kept   int
	caches map[*cache]struct{}
}

func (b *budget) join(c *cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.caches == nil {
		b.caches = make(map[*cache]struct{})
	}
	b.caches[c] = struct{}{}
}

func (b *budget) leave(c *cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.caches, c)
}

// take reports whether size bytes more may be kept, and counts them.
func (b *budget) take(size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size > b.limit-b.kept {
		return false
	}
	b.kept += size
	return true
}

func (b *budget) giveBack(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept -= size
}

// others returns the caches but c.
func (b *budget) others(c *cache) []*cache {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*cache, 0, len(b.caches))
	for k := range b.caches {
		if k != c {
			all = append(all, k)
		}
	}
	return all
}

// evictOne drops one registration of another cache than c. Called without the lock
// of any.
func (b *budget) evictOne(c *cache) bool {
	for _, other := range b.others(c) {
		other.mu.Lock()
		evicted := other.evictOne()
		other.mu.Unlock()
		if evicted {
			return true
		}
	}
	return false
}

// evict drops all that is not in use, and reports whether there was anything.
func (b *budget) evict() (any bool) {
	for _, c := range b.others(nil) {
		any = c.evict() || any
	}
	return any
}

// lock calls register, which locks memory, and once more if that failed for want of
// memory that may be locked, and some could be had back. Called without the lock of
// any cache.
func (b *budget) lock(register func() error) error {
	err := register()
	if (errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)) && b.evict() {
		err = register()
	}
	return err
}
