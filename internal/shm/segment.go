//go:build linux

package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/gate"
)

// A segment begins with a page of control, in which index 0 is the direction from the end that
// made it. Then come the areas of both rings. Its size is fixed and sealed, so that no end can cut
// it short while the other uses it. A page costs memory from the first time it is touched.
const (
	controlLen = 4 << 10
	ringLen    = small + medium + large
	segmentLen = controlLen + 2*ringLen
	seals      = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

	// Cost is about what a segment takes at each end before Widen: the page of control, the small areas, page tables,
	// the doorbell, and the garbage collector's share of what Go has for it.
	Cost = 32 << 10

	// layout is the version of the segment and of what the ends say to each other when they meet.
	layout = 1
)

// control is the first page of a segment.
type control struct {
	version atomic.Uint64
	leave   atomic.Uint32 // an end wants both directions on TCP
	left    atomic.Uint32 // the end that did not make the segment uses it no more, and may keep it for the next connection
	_       [112]byte
	gates   [2]struct {
		gate.Gate
		_ [120]byte
	}
	ways [2]way
}

var _ [controlLen - unsafe.Sizeof(control{})]byte // it fits

// Segment is one end's view of the memory.
type Segment struct {
	mem   []byte
	maker int // 0 at the end that made it, 1 at the other
	peer  Peer
	fd    int  // at the end that made it; -1: it was closed. Guarded by pool.mu once the pool has it
	idle  bool // at the end that made it: nobody uses it. Guarded by pool.mu
	id    file // at the other end
	*control
}

// New makes a segment, or returns one that the peer has left. The caller sends File to the other end, and calls Sent. The
// error is an os.SyscallError, or says which limit is too low.
func New(peer Peer) (*Segment, error) {
	s := takeMade(peer)
	if s == nil {
		var err error
		if s, err = create(); err != nil {
			return nil, err
		}
		s.peer = peer
	}
	for i := range s.gates {
		s.gates[i].Init()
	}
	s.version.Store(layout)
	return s, nil
}

// File returns the descriptor of a segment that New has returned.
func (s *Segment) File() int { return s.fd }

// Sent ends the use of the descriptor.
func (s *Segment) Sent() {
	if s.peer != (Peer{}) {
		s.keepFile()
		return
	}
	unix.Close(s.fd)
	s.fd = -1
}

// create makes a file, and maps it.
func create() (*Segment, error) {
	// The kernel answers a file longer than RLIMIT_FSIZE with a signal.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	if limit.Cur < segmentLen {
		return nil, fmt.Errorf("file size limit is %d bytes, shared memory needs %d", limit.Cur, segmentLen)
	}
	fd, err := memfd()
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, segmentLen); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	var s *Segment
	if err == nil {
		s, err = mapSegment(fd, 0)
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("memory file", err)
	}
	s.fd = fd
	return s, nil
}

// noExecSeal is cleared if the kernel does not know MFD_NOEXEC_SEAL (Linux 6.3).
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

// Open maps the segment in a file that the other end has sent. It checks that no process can cut the
// file short, because a missing page in a mapping is a fatal signal. The caller closes the descriptor.
func Open(peer Peer, fd int) (*Segment, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	id := file{st.Dev, st.Ino}
	s := takeOpened(peer, id)
	if s == nil {
		var err error
		if s, err = open(fd, st.Size); err != nil {
			return nil, err
		}
		s.peer, s.id = peer, id
	}
	if v := s.version.Load(); v != layout {
		s.Unmap()
		return nil, fmt.Errorf("peer uses layout %d of shared memory, want %d", v, layout)
	}
	return s, nil
}

// open maps a file that nobody can cut short.
func open(fd int, size int64) (*Segment, error) {
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("peer sent a descriptor that is not a memory file: %w", err)
	}
	if have&seals != seals || have&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return nil, fmt.Errorf("peer sent a memory file with seals %#x, want %#x", have, seals)
	}
	if size != segmentLen {
		return nil, fmt.Errorf("peer sent a memory file of %d bytes, want %d", size, segmentLen)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != unix.TMPFS_MAGIC { // huge pages may run out even after they were mapped
		return nil, fmt.Errorf("peer sent a memory file on file system type %#x, want tmpfs", fs.Type)
	}
	s, err := mapSegment(fd, 1)
	return s, os.NewSyscallError("mmap", err)
}

func mapSegment(fd, maker int) (*Segment, error) {
	p, err := unix.MmapPtr(fd, 0, nil, segmentLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	mem := unsafe.Slice((*byte)(p), segmentLen)
	return &Segment{mem: mem, maker: maker, fd: -1, control: (*control)(unsafe.Pointer(&mem[0]))}, nil
}

// Release ends the use of the memory. Nothing that the segment has returned may be used after it.
func (s *Segment) Release() {
	if !s.keep() {
		s.Unmap()
	}
}

// Out and OutGate return this end's half of the direction to the peer, and its gate.
func (s *Segment) Out() Producer {
	return newProducer(&s.ways[s.maker], s.areas(s.maker))
}

func (s *Segment) OutGate() *gate.Gate { return &s.gates[s.maker].Gate }

// In and InGate return this end's half of the direction from the peer, and its gate.
func (s *Segment) In() Consumer {
	return Consumer{way: &s.ways[1-s.maker], mem: s.areas(1 - s.maker), most: ringLen}
}

func (s *Segment) InGate() *gate.Gate { return &s.gates[1-s.maker].Gate }

// areas returns the areas of one direction's ring.
func (s *Segment) areas(way int) (a [areas][]byte) {
	m := s.mem[controlLen+way*ringLen:]
	for i, n := range [areas]int{small, medium, large} {
		a[i], m = m[:n:n], m[n:]
	}
	return a
}

// Leave asks both ends to bring their directions back to TCP.
func (s *Segment) Leave() { s.leave.Store(1) }

// Leaving reports whether an end has called Leave.
func (s *Segment) Leaving() bool { return s.leave.Load() != 0 }

// Shrink gives the memory of the large area back to the system, if no byte is unread there, and reports whether it did.
func (p *Producer) Shrink() bool {
	if p.look() != nil {
		return false
	}
	p.fit(0)
	for i, u := range p.uses {
		if u.area == areas-1 && (i == len(p.uses)-1 || p.taken < p.uses[i+1].start) {
			return false
		}
	}
	return unix.Madvise(p.mem[areas-1], unix.MADV_REMOVE) == nil
}
