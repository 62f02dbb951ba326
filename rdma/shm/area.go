//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// The area is the memory that two ends share, a sealed memory file:
//
//	0        control   version, indices, sleep words and states; a struct for each direction
//	4 KB     small     a ring of 4 KB for each direction, for connections with little traffic
//	64 KB    big       a ring of 512 KB for each direction, for connections that stream
//
// Its size is fixed, so that no end can cut it short while the other uses it. A page costs memory
// from its first write until it is returned to the kernel.
//
// layout is the version of all of this, of the records in the rings, and of what the ends say when
// they open a channel. It changes with any of them. Each version is offered as a device of its own
// (wire.DeviceSHM), so two ends without a common version do not try. The version in the area
// detects a peer that breaks the rules.
const (
	layout     = 5
	controlLen = 4 << 10
	smallRing  = 4 << 10
	bigRing    = 512 << 10
	bigStart   = 64 << 10 // a multiple of the page size of every system
	areaLen    = bigStart + 2*bigRing
)

// maxReads bounds the RDMA Reads that one end may have outstanding at the other.
const maxReads = 64

// direction is the control of one direction, from the producer's end to the consumer's. Each word
// has one writer, except the two sleep words: the sleeper sets its word, and the other end clears
// it to wake the sleeper.
//
// Words that one end writes often are in a cache line of their own, and in a pair of lines that
// the other end seldom reads, because processors fetch pairs.
type direction struct {
	key   atomic.Uint64 // of the headers' stamps; written by the end that makes or renews the area
	idle  atomic.Uint32 // the consumer's end sleeps until a record arrives
	state atomic.Uint32 // producer: see the states below
	turn  atomic.Uint64 // producer: the position at which the small ring is in use again
	rang  atomic.Int64  // producer: when it last woke the consumer's end, on the machine's clock
	_     [96]byte

	head atomic.Uint64 // consumer: position of the first record that it has not taken
	full atomic.Uint32 // the producer sleeps until head moves
	_    [116]byte

	written atomic.Uint32 // consumer: how many RDMA Writes of the producer it has carried out
	_       [60]byte

	taken atomic.Uint32 // producer: how many uses of the channel it has begun,
	left  atomic.Uint32 // and how many of them it has left; see link
	bytes atomic.Uint32 // producer: how many bytes of the doorbell its socket can hold
	_     [52]byte

	// read is how many bytes of payload the consumer's program has read. The producer needs it
	// only after the consumer's process has ended.
	read atomic.Uint64 // consumer
	_    [120]byte

	granted [maxReads]atomic.Uint32 // consumer: numbers of the RDMA Reads that the producer may carry out
	pulling [maxReads]atomic.Uint32 // producer: numbers of those of which it is moving a segment
}

// The states of an end.
const (
	stateOpen       = iota
	stateClosed     // it has ended after everything it wrote
	stateAborted    // it has ended at once
	stateTerminated // it has ended because the other end violated a rule
)

// control is the start of an area. The end that dials makes the area, and renews it for another
// use; see link. Direction 0 is from that end to the other.
type control struct {
	version atomic.Uint64 // layout; written by the end that made the area
	_       [120]byte
	ways    [2]direction
	ticket  [2]atomic.Uint64 // a hash of the ticket for the next use; written by the end that dials
	claim   atomic.Uint32    // between two uses: the connection of the next one; see claim.go
}

var _ [controlLen - unsafe.Sizeof(control{})]byte // it fits

// area is a mapped area.
type area struct {
	mem []byte
	ctl *control
}

const areaSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newArea makes an area and a descriptor for the other end, which the caller closes.
func newArea() (a *area, file int, err error) {
	// The kernel answers a file longer than RLIMIT_FSIZE with a signal.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return nil, -1, os.NewSyscallError("getrlimit", err)
	}
	if limit.Cur < areaLen {
		return nil, -1, fmt.Errorf("shm: file size limit is %d bytes, need %d (RLIMIT_FSIZE)", limit.Cur, areaLen)
	}
	fd, err := memfd()
	if err != nil {
		return nil, -1, os.NewSyscallError("memfd_create", err)
	}
	err = unix.Ftruncate(fd, areaLen)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, areaSeals)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, os.NewSyscallError("memory file", err)
	}
	a, err = mapArea(fd, nil)
	if err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	a.ctl.version.Store(layout)
	a.newKeys()
	return a, fd, nil
}

func (a *area) key(way int) uint64 { return a.ctl.ways[way].key.Load() }

// noExecSeal is cleared when the kernel does not know MFD_NOEXEC_SEAL (6.3).
var noExecSeal atomic.Uint32

func init() { noExecSeal.Store(unix.MFD_NOEXEC_SEAL) }

func memfd() (int, error) {
	for {
		extra := noExecSeal.Load()
		fd, err := unix.MemfdCreate("sdp", int(unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|extra))
		if err != unix.EINVAL || extra == 0 {
			return fd, err
		}
		noExecSeal.Store(0)
	}
}

// openArea maps the area in a file that the other end has sent, after checking that no process can
// cut the file short: a missing page in a mapping is a fatal signal. If at is not nil, the mapping
// takes the place of the address space there, but only if openArea succeeds.
func openArea(fd int, at unsafe.Pointer) (*area, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: peer's file descriptor is not a memfd: %w", err)
	}
	if seals&areaSeals != areaSeals {
		return nil, fmt.Errorf("shm: peer's memfd has seals %#x, want %#x", seals, areaSeals)
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return nil, fmt.Errorf("shm: peer's memfd is sealed against writing: %#x", seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Size != areaLen {
		return nil, fmt.Errorf("shm: peer's memfd has %d bytes, want %d", st.Size, areaLen)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		// Huge pages may run out even after they were mapped, and nothing else is known to have seals.
		return nil, fmt.Errorf("shm: peer's memfd is on file system type %#x, want tmpfs", fs.Type)
	}
	a, err := mapArea(fd, at)
	if err != nil {
		return nil, err
	}
	if v := a.ctl.version.Load(); v != layout {
		if at == nil {
			a.unmap()
		}
		return nil, fmt.Errorf("shm: peer's memory has layout version %d, want %d", v, layout)
	}
	return a, nil
}

// reserve allocates the address space of an area, so that openArea cannot fail for lack of it.
func reserve() (unsafe.Pointer, error) {
	if err := mapped.take(); err != nil {
		return nil, err
	}
	at, err := unix.MmapPtr(-1, 0, nil, areaLen, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	return at, os.NewSyscallError("mmap", err)
}

// release frees address space that has not become an area.
func release(at unsafe.Pointer) { unix.MunmapPtr(at, areaLen) }

// mapArea maps an area in reserved address space, or anywhere if at is nil.
func mapArea(fd int, at unsafe.Pointer) (*area, error) {
	flags := unix.MAP_SHARED
	if at != nil {
		flags |= unix.MAP_FIXED
	} else if err := mapped.take(); err != nil {
		return nil, err
	}
	mem, err := unix.MmapPtr(fd, 0, at, areaLen, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	a := &area{mem: unsafe.Slice((*byte)(mem), areaLen), ctl: (*control)(mem)}
	// If shared memory had huge pages, the first byte would cost 2 MB.
	unix.Madvise(a.mem, unix.MADV_NOHUGEPAGE)
	return a, nil
}

// unmap ends the mapping. No goroutine may be using the area.
func (a *area) unmap() {
	if a.mem != nil {
		unix.MunmapPtr(unsafe.Pointer(&a.mem[0]), areaLen)
	}
	a.mem, a.ctl = nil, nil
}

// small and big return the rings of one direction.
func (a *area) small(way int) []byte {
	start := controlLen + way*smallRing
	return a.mem[start : start+smallRing : start+smallRing]
}

func (a *area) big(way int) []byte {
	start := bigStart + way*bigRing
	return a.mem[start : start+bigRing : start+bigRing]
}

// giveBack returns the pages of an empty big ring to the kernel.
func giveBack(ring []byte) {
	unix.Madvise(ring, unix.MADV_REMOVE)
}

// overcommit returns an error if the kernel accounts strictly for memory: it may then fail to
// provide a page of a mapping that it has granted, which is a fatal signal.
var overcommit = sync.OnceValue(func() error {
	text, err := sysfile.Read("/proc/sys/vm/overcommit_memory")
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	if text == "2" {
		return errors.New("shm: not usable with vm.overcommit_memory=2: a page that the kernel refuses kills the process")
	}
	return nil
})
