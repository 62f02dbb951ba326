//go:build linux

package limits

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/sysfile"
)

const (
	shareUsed = 9
	shareAll  = 10
)

func tooMany(n, most uint64) bool { return n >= most/shareAll*shareUsed }

// Admit returns an error if this process has too many file descriptors or too many mappings for
// another connection that moves, or locks all of its memory. Otherwise it assumes that the caller maps one segment. It is safe
// for concurrent use.
func Admit() error {
	if err := descriptors(); err != nil {
		return err
	}
	if locksAll() {
		return errLocks
	}
	return mapped.take()
}

var errLocks = errors.New("limits: process locks its memory (mlockall), shared memory would be locked before it is used")

// locksAll reports whether the kernel locks what this process maps from now on, which fills it with pages at once
// (MCL_FUTURE without MCL_ONFAULT). A new page shows it.
func locksAll() bool {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return false
	}
	defer unix.Munmap(page)
	var there byte
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)), uintptr(unsafe.Pointer(&there)))
	return e == 0 && there&1 != 0
}

// descriptors returns an error if too many descriptors are open. The kernel gives a new descriptor
// the lowest free number, so at least that many others are open. An eventfd costs the least of
// those that need no other descriptor.
func descriptors() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if tooMany(uint64(fd), limit.Cur) {
		return fmt.Errorf("limits: %d file descriptors in use, too close to the limit of %d; raise RLIMIT_NOFILE", fd, limit.Cur)
	}
	return nil
}

// mappings estimates how many mappings this process has. Counting a few takes 0.1 ms, which is as
// much as moving a connection takes, and counting many takes tens of milliseconds. So it counts
// again only if many segments were mapped since the last count or if that is long ago, and for few
// segments not before countLong. The count cannot be good for longer, because the program itself
// maps memory too.
type mappings struct {
	count func() (n, most int) // most is 0 if the limit is unknown
	begin time.Time            // when this process began

	mu   sync.Mutex
	n    int // at the last count
	most int
	made int // segments since then
	at   time.Time
	took time.Duration
}

const (
	// leastMade segments are mapped without another count for countLong: at a tenth below the limit
	// they do no harm. An eighth of those that still fit may be mapped between two counts if that
	// is more and the count is good.
	leastMade = 16
	// A count is good for countShare times as long as it took, and at most for countLong, because
	// the process may have been stopped while it counted.
	countShare = 100
	countLong  = 5 * time.Second
	// young is less than a process needs to make so many mappings that they matter.
	young = 20 * time.Millisecond
)

// mapped is the estimate of this process.
var mapped = mappings{count: countMappings, begin: time.Now()}

// take returns an error if there are too many mappings for another segment. Otherwise it records
// that one is being mapped.
func (m *mappings) take() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.lookLocked()
	if err == nil {
		m.made++
	}
	return err
}

// lookLocked counts if that is necessary.
func (m *mappings) lookLocked() error {
	begin := time.Now()
	if m.at.IsZero() {
		if begin.Sub(m.begin) < young && !bubble.Inside() { // in which every process is young
			return nil
		}
	} else if m.made <= leastMade && begin.Sub(m.at) <= countLong && !m.tooManyLocked() {
		return nil
	}
	room := m.most/shareAll*shareUsed - m.n
	if m.made > max(leastMade, room/8) || begin.Sub(m.at) > min(countShare*m.took, countLong) {
		m.n, m.most = m.count()
		m.made, m.at = 0, time.Now()
		m.took = m.at.Sub(begin)
	}
	if m.tooManyLocked() {
		return fmt.Errorf("limits: %d memory mappings in use, too close to the limit of %d; raise vm.max_map_count", m.n+m.made, m.most)
	}
	return nil
}

func (m *mappings) tooManyLocked() bool {
	return m.most > 0 && tooMany(uint64(m.n+m.made), uint64(m.most))
}

// countMappings counts the lines of /proc/self/maps.
func countMappings() (n, most int) {
	text, err := sysfile.Read("/proc/sys/vm/max_map_count")
	if err != nil {
		return 0, 0
	}
	most, _ = strconv.Atoi(text)
	if n, err = sysfile.Lines("/proc/self/maps"); err != nil {
		return 0, 0
	}
	return n, most
}
