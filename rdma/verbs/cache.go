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

// cache keeps registrations of this end's own memory, the sources of its RDMA Writes and the sinks
// of its RDMA Reads, for the next transfer from or to there. Memory that the peer may access is
// never in it.
//
// Go returns freed memory to the kernel without notice, and a registration refers to the pages that
// were there when it was made. So a registration is used only while its weak pointer yields the
// allocation that it is in; an equal address proves nothing. Cleanups run late, and only free.
// Memory outside of Go's heap has neither, and is registered for one transfer.
//
// A cache belongs to one connection, like the protection domain; a budget bounds what all of them
// keep together. mu guards everything that is not atomic. The budget's lock comes after it.
type cache struct {
	device registrar
	budget *budget

	mu     sync.Mutex
	kept   []*registration
	turn   uint64
	closed bool
}

// registrar is what the cache needs of a device.
type registrar interface {
	// register returns the argument of deregister. It fails with syscall.ENOMEM if no more
	// memory may be locked.
	register(b []byte, u use) (mr any, err error)
	// deregister fails if the device does not give back the memory. That matters only if the
	// peer may access it.
	deregister(mr any) error
}

// use is the purpose for which memory is registered.
type use int

const (
	source  use = iota // of an RDMA Write
	sink               // of an RDMA Read
	exposed            // sink of an RDMA Read on iWARP, where the peer needs the right to write
)

const (
	// leastKept is the smallest memory whose registration is kept.
	leastKept = 16 << 10
	// mostKept is how many registrations a connection keeps.
	mostKept = 256
)

// registration is of memory that this end's device may access.
type registration struct {
	cache *cache
	mr    any
	users atomic.Int32 // transfers in progress
	once  bool         // it is for one transfer

	// If it is kept:
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

// get returns a registration of b for one transfer, which calls put at its end. Until then the
// caller keeps b alive. The error is syscall.ENOMEM if no more memory may be locked although
// everything that is kept is in use.
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
	// Registered as a sink, which Go's memory can always be, it serves as a source too.
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

// register makes room once if no more memory may be locked.
func (c *cache) register(b []byte, u use) (mr any, err error) {
	err = c.budget.lock(func() error {
		mr, err = c.device.register(b, u)
		return err
	})
	return mr, err
}

// put ends the use of the registration by a transfer. After an error the peer may still access the
// memory if the transfer has let it. It takes no lock, because completions must not wait while memory
// is being registered.
func (r *registration) put() error {
	if r.once {
		return r.cache.device.deregister(r.mr)
	}
	r.users.Add(-1)
	return nil
}

// watch attaches a cleanup and a weak pointer to the allocation of b. It returns false if there is
// none. AddCleanup comes first: for memory that is not Go's it panics, whereas weak.Make ends the
// program.
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

// anchor returns the byte of b whose address is a multiple of the largest power of two. The runtime
// keeps a record for each byte of an allocation to which there was a weak pointer, as long as the
// allocation lives, so there should be few.
func anchor(b []byte) *byte {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	last := first + uintptr(len(b)) - 1
	at := last &^ (1<<(bits.Len64(uint64((first-1)^last))-1) - 1)
	return &b[at-first]
}

// find returns a registration that is kept and contains all of b.
func (c *cache) find(b []byte) *registration {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.kept {
		if base < r.base || base+uintptr(len(b)) > r.base+uintptr(r.size) || r.memory.Value() == nil {
			continue
		}
		// The allocation at r's address is alive, so b is a part of it.
		c.turn++
		r.used = c.turn
		r.users.Add(1)
		return r
	}
	return nil
}

// keep adds a registration that is in use from now on, for which the budget has room.
func (c *cache) keep(r *registration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.users.Add(1)
	if c.closed || len(c.kept) >= mostKept && !c.evictOneLocked() {
		r.once = true
		r.cleanup.Stop()
		c.budget.giveBack(r.size)
		return
	}
	c.turn++
	r.used = c.turn
	c.kept = append(c.kept, r)
}

// reserve makes room for size bytes in the budget. It returns false if it cannot.
func (c *cache) reserve(size int) bool {
	if size > c.budget.limit {
		return false
	}
	for !c.budget.take(size) {
		c.mu.Lock()
		evicted := c.evictOneLocked()
		c.mu.Unlock()
		if !evicted && !c.budget.evictOne(c) {
			return false
		}
	}
	return true
}

// evictOneLocked drops a registration that is not in use: one whose memory was freed, or else the
// one whose last use is longest ago.
func (c *cache) evictOneLocked() bool {
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
	c.dropLocked(oldest)
	return true
}

// evict drops everything that is not in use, and reports whether there was anything.
func (c *cache) evict() (any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.evictOneLocked() {
		any = true
	}
	return any
}

// freed is the cleanup: the memory was freed, so the registration is not in use.
func (r *registration) freed() {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	r.cache.dropLocked(r)
}

// dropLocked ends a registration, unless it was dropped already.
func (c *cache) dropLocked(r *registration) {
	for i, k := range c.kept {
		if k == r {
			last := len(c.kept) - 1
			c.kept[i], c.kept[last] = c.kept[last], nil
			c.kept = c.kept[:last]
			r.cleanup.Stop()
			_ = c.device.deregister(r.mr) // the peer has no access to it
			c.budget.giveBack(r.size)
			return
		}
	}
}

// close drops everything. No transfer may be in progress or begin.
func (c *cache) close() {
	c.budget.leave(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for len(c.kept) > 0 {
		c.dropLocked(c.kept[0])
	}
}

// budget bounds, in bytes, what a process keeps registered without need.
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

// take counts size more bytes, and returns false if they may not be kept.
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

// others returns the caches other than c.
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

// evictOne drops one registration of a cache other than c. The caller must hold no lock of any
// cache.
func (b *budget) evictOne(c *cache) bool {
	for _, other := range b.others(c) {
		other.mu.Lock()
		evicted := other.evictOneLocked()
		other.mu.Unlock()
		if evicted {
			return true
		}
	}
	return false
}

// evict drops everything that is not in use, and reports whether there was anything.
func (b *budget) evict() (any bool) {
	for _, c := range b.others(nil) {
		any = c.evict() || any
	}
	return any
}

// lock calls register, which locks memory. If that fails because no more memory may be locked, and
// lock can evict something, it calls register again. The caller must hold no lock of any cache.
func (b *budget) lock(register func() error) error {
	err := register()
	if (errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)) && b.evict() {
		err = register()
	}
	return err
}
