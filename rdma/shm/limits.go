//go:build linux

package shm

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// A process has a limited number of mappings (vm.max_map_count) and descriptors (RLIMIT_NOFILE),
// and the runtime aborts a Go program that cannot map more heap. So no channel is made above this
// share of either limit; the connection is plain TCP then.
const (
	shareUsed = 9
	shareAll  = 10
)

func tooMany(n, most uint64) bool { return n >= most/shareAll*shareUsed }

// descriptorFits returns an error if too many descriptors are open for another channel. The kernel
// gives a new descriptor the lowest free number, so at least fd others are open.
func descriptorFits(fd int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if tooMany(uint64(fd), limit.Cur) {
		return fmt.Errorf("shm: this process has %d descriptors, too near to its limit of %d (RLIMIT_NOFILE)", fd+1, limit.Cur)
	}
	return nil
}

// mappings estimates how many mappings this process has. Counting many takes tens of milliseconds,
// so it counts only if many areas were mapped since the last time, or if that is long ago.
type mappings struct {
	count func() (n, most int) // most is 0 if the limit is unknown

	mu   sync.Mutex
	n    int // at the last count
	most int
	made int // areas since then
	at   time.Time
	took time.Duration
}

const (
	// leastMade areas may be mapped between two counts, or an eighth of those that still fit if
	// that is more.
	leastMade = 16
	// A count is good for countShare times as long as it took, and at most for countLong, because
	// the process may have been stopped while it counted.
	countShare = 100
	countLong  = 5 * time.Second
)

// mapped is the estimate of this process.
var mapped = mappings{count: countMappings}

// fits returns an error if there are too many mappings for another area.
func (m *mappings) fits() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookLocked()
}

// take is like fits, and also records that an area is being mapped.
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
	room := m.most/shareAll*shareUsed - m.n
	if m.at.IsZero() || m.made > max(leastMade, room/8) || begin.Sub(m.at) > min(countShare*m.took, countLong) {
		m.n, m.most = m.count()
		m.made, m.at = 0, time.Now()
		m.took = m.at.Sub(begin)
	}
	if n := m.n + m.made; m.most > 0 && tooMany(uint64(n), uint64(m.most)) {
		return fmt.Errorf("shm: this process has %d mappings, too near to the limit of %d (vm.max_map_count)", n, m.most)
	}
	return nil
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
