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

// A process has so many mappings (vm.max_map_count) and descriptors (RLIMIT_NOFILE) and
// no more, and a Go program that cannot map its next piece of heap is ended by the
// runtime. So no channel is made above this share of either; the connection is plain TCP
// then.
const (
	shareUsed = 9
	shareAll  = 10
)

func tooMany(n, most uint64) bool { return n >= most/shareAll*shareUsed }

// descriptorFits returns an error if too many descriptors are open for another channel.
// The kernel gives a new one the lowest number that is free, so a number tells how many
// there are at least.
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

// mappings estimates how many mappings this process has. To count them takes tens of
// milliseconds where they are many, so it counts only when many areas were mapped since
// the last time, or when that is long ago.
type mappings struct {
	count func() (n, most int) // most is 0 if it is not known

	mu   sync.Mutex
	n    int // at the last count
	most int
	made int // areas since then
	at   time.Time
	took time.Duration
}

const (
	// leastMade areas may be mapped between two counts, and an eighth of those that still
	// fit if that is more.
	leastMade = 16
	// countShare is how many times as long as a count took it is good for, and countLong
	// for how long at most: the process may have been stopped while it counted.
	countShare = 100
	countLong  = 5 * time.Second
)

// mapped is of this process.
var mapped = mappings{count: countMappings}

// fits returns an error if there are too many mappings for another area.
func (m *mappings) fits() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.look()
}

// take is fits, and notes that an area is being mapped.
func (m *mappings) take() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.look()
	if err == nil {
		m.made++
	}
	return err
}

// look counts if that is necessary. Called with mu held.
func (m *mappings) look() error {
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
