//go:build linux

package verbs

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	process "github.com/gosdp/gosdp/internal/budget"
)

// slabs is the memory for the send rings and receive buffers of all connections of a process. It is
// mapped in large slabs, which are kept. A connection gets a slice of whole pages, and registers only
// that, in its own protection domain.
//
// The slices are locked in memory while they are registered, so the limit bounds them: it is the
// memory budget of the process, or what the process may lock if that is less. Growth leaves a quarter
// of it to new connections.
type slabs struct {
	limit func() int64

	mu   sync.Mutex
	used int64 // bytes of all slices
	all  []*slab
}

// buffers has the slices of this process's connections.
var buffers = slabs{limit: func() int64 { return min(process.Process.Limit(), lockLimit()) }}

const (
	pageSize  = 4 << 10 // slices are multiples of this, and of the machine's page size in a slab
	slabPages = 1 << 10
	slabSize  = slabPages * pageSize
)

// slab is one mapping. A slice that is longer than slabSize has a slab of its own, which is unmapped
// with it.
type slab struct {
	mem   []byte
	taken []bool // by page
	free  int    // pages
}

// claim says how urgent memory is.
type claim int

const (
	growing claim = iota // a connection can do without: a quarter of the limit is left free
	opening              // a new connection
	needed               // a message that was accepted: the limit does not matter
)

// pages rounds a number of bytes up to whole pages.
func pages(size int) int {
	unit := max(pageSize, os.Getpagesize())
	return (size + unit - 1) / unit * unit
}

// get returns a slice of at least size bytes, which put returns.
func (s *slabs) get(size int, c claim) ([]byte, error) {
	size = pages(size)
	limit := s.limit()
	most := limit
	if c == growing {
		most -= limit / 4
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != needed && s.used+int64(size) > most {
		return nil, fmt.Errorf("verbs: locked memory limit reached: %d of %d KB in use by connections, need %d KB more; raise SDP_MEMORY or RLIMIT_MEMLOCK", s.used>>10, most>>10, size>>10)
	}
	mem, err := s.findLocked(size)
	if err == nil {
		s.used += int64(len(mem))
	}
	return mem, err
}

// findLocked returns a free slice. It maps another slab if there is none.
func (s *slabs) findLocked(size int) ([]byte, error) {
	n := size / pageSize
	if n <= slabPages {
		for _, b := range s.all {
			if mem := b.take(n); mem != nil {
				return mem, nil
			}
		}
	}
	mem, err := unix.Mmap(-1, 0, max(size, slabSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	b := &slab{mem: mem, taken: make([]bool, len(mem)/pageSize), free: len(mem) / pageSize}
	s.all = append(s.all, b)
	return b.take(n), nil
}

// take returns the first n free pages in a row, or nil.
func (b *slab) take(n int) []byte {
	if b.free < n {
		return nil
	}
	run := 0
	for i, taken := range b.taken {
		if taken {
			run = 0
			continue
		}
		if run++; run < n {
			continue
		}
		first := i + 1 - n
		for k := first; k <= i; k++ {
			b.taken[k] = true
		}
		b.free -= n
		return b.mem[first*pageSize : (i+1)*pageSize : (i+1)*pageSize]
	}
	return nil
}

// put returns a slice, which must not be registered, and its pages to the kernel.
func (s *slabs) put(mem []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.all {
		at := int(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) - uintptr(unsafe.Pointer(unsafe.SliceData(b.mem))))
		if at < 0 || at >= len(b.mem) {
			continue
		}
		s.used -= int64(len(mem))
		for k := at / pageSize; k < (at+len(mem))/pageSize; k++ {
			b.taken[k] = false
		}
		b.free += len(mem) / pageSize
		if len(b.mem) > slabSize {
			unix.Munmap(b.mem)
			s.all = append(s.all[:i], s.all[i+1:]...)
			return
		}
		if unix.Madvise(mem, unix.MADV_DONTNEED) != nil { // with mlockall, the kernel refuses
			clear(mem)
		}
		return
	}
	panic("verbs: memory that is of no slab is given back")
}

// lockLimit returns how many bytes this process may lock.
func lockLimit() int64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur > 1<<62 || locksAnything() {
		return 1 << 62
	}
	return int64(limit.Cur)
}

// locksAnything reports whether this process has the capability that exempts it from the limit.
// Root may lack it, and another user may have it. The capability of a user namespace has no effect:
// the kernel then fails to register memory.
func locksAnything() bool {
	var has [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0])
	return err == nil && has[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}
