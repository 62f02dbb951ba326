package limits

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMappingsAreCountedNowAndThen: a count is good for some segments, and then for a while; near the
// limit, for few segments.
func TestMappingsAreCountedNowAndThen(t *testing.T) {
	n, counts := 1000, 0
	m := mappings{count: func() (int, int) {
		counts++
		return n, 65_530
	}}
	takes := func(times int) (counted int) {
		counts = 0
		for range times {
			require.NoError(t, m.take())
			m.took = time.Hour // so that the count does not expire
			n++
		}
		return counts
	}
	assert.Equal(t, 1, takes(1))
	assert.Equal(t, 0, takes(7000))
	n = 58_977 - 100
	m.at = time.Time{}
	assert.Equal(t, 6, takes(100))
	n = 58_977
	m.at = time.Time{}
	assert.ErrorContains(t, m.take(), "58977 memory mappings in use, too close to the limit of 65530")
	n = 10
	m.took = time.Hour
	assert.Error(t, m.lookLocked(), "it is not counted for each")
	m.at = time.Now().Add(-2 * countShare * time.Hour)
	assert.NoError(t, m.lookLocked())
	counts = 0
	m.took = 0 // the count is too old at once
	for range leastMade + 1 {
		assert.NoError(t, m.take())
		assert.Zero(t, counts, "few segments were mapped since the last one")
	}
	assert.NoError(t, m.lookLocked())
	assert.Equal(t, 1, counts)

	n = 58_977
	assert.NoError(t, m.lookLocked())
	m.at = time.Now().Add(-2 * countLong)
	assert.Error(t, m.lookLocked(), "the program has mapped memory itself")
}

// TestMappingsOfAYoungProcess: a process that has just begun cannot have many.
func TestMappingsOfAYoungProcess(t *testing.T) {
	counts := 0
	m := mappings{begin: time.Now().Add(time.Hour), count: func() (int, int) {
		counts++
		return 58_977, 65_530
	}}
	assert.NoError(t, m.take())
	assert.Zero(t, counts)
	m.begin = time.Now().Add(-young)
	synctest.Test(t, func(t *testing.T) {
		assert.Error(t, m.take(), "the clock of a bubble says that no process has begun")
	})
	m.at = time.Time{}
	assert.Error(t, m.take())
	assert.Equal(t, 2, counts)
}

// TestMappingsBetweenCounts: segments count before they are in a count.
func TestMappingsBetweenCounts(t *testing.T) {
	m := mappings{count: func() (int, int) { return 58_970, 65_530 }}
	for range 7 {
		require.NoError(t, m.take())
		m.took = time.Hour
	}
	assert.Error(t, m.take())
}

// TestCountMappings: the count includes the mappings of this process.
func TestCountMappings(t *testing.T) {
	before, most := countMappings()
	assert.Greater(t, before, 5)
	assert.Greater(t, most, before)
	const pages = 500
	size := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer unix.Munmap(b)
	for i := 0; i < pages; i += 2 {
		require.NoError(t, unix.Mprotect(b[i*size:(i+1)*size], unix.PROT_NONE))
	}
	after, _ := countMappings()
	assert.InDelta(t, before+pages, after, 20)
}

// full makes the count of mappings say that there are too many, until the test ends.
func full(t *testing.T) {
	set := func(count func() (int, int)) (was func() (int, int)) {
		mapped.mu.Lock()
		defer mapped.mu.Unlock()
		was, mapped.count, mapped.at, mapped.begin = mapped.count, count, time.Time{}, time.Time{}
		return was
	}
	was := set(func() (int, int) { return 65_000, 65_530 })
	t.Cleanup(func() { set(was) })
}

// TestAdmit: nothing is admitted near either limit, nor without a descriptor, and no descriptor stays
// open.
func TestAdmit(t *testing.T) {
	before := open(t)
	require.NoError(t, Admit())
	t.Run("mappings", func(t *testing.T) {
		full(t)
		assert.ErrorContains(t, Admit(), "max_map_count")
	})
	t.Run("descriptors", func(t *testing.T) {
		lowLimit(t)
		one := func() (fd int, err error) {
			if fd, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
				t.Cleanup(func() { unix.Close(fd) })
			}
			return fd, err
		}
		var err error
		for fd := 0; fd < 107; { // the next is nine tenths of 128
			require.NoError(t, Admit(), fd)
			fd, err = one()
			require.NoError(t, err)
		}
		assert.ErrorContains(t, Admit(), "RLIMIT_NOFILE")
		for err == nil {
			_, err = one()
		}
		assert.ErrorIs(t, Admit(), unix.EMFILE)
	})
	require.NoError(t, Admit())
	assert.Equal(t, before, open(t))
}

// open returns the lowest number that no open descriptor has.
func open(t *testing.T) int {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	return fd
}

// lowLimit lets this process have few descriptors until the test ends.
func lowLimit(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = 128
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
}

func BenchmarkAdmit(b *testing.B) {
	for b.Loop() {
		Admit()
	}
}

// TestProcessThatLocksItsMemory does not move connections: a mapping would be as large as the memory it may have.
func TestProcessThatLocksItsMemory(t *testing.T) {
	require.NoError(t, Admit())
	lock := func(flags int) {
		if err := unix.Mlockall(flags); err != nil {
			t.Skip("missing: permission to lock memory: ", err)
		}
	}
	defer unix.Munlockall()
	lock(unix.MCL_FUTURE)
	assert.ErrorIs(t, Admit(), errLocks)
	lock(unix.MCL_FUTURE | unix.MCL_ONFAULT)
	assert.NoError(t, Admit(), "pages are locked as they are used")
	require.NoError(t, unix.Munlockall())
	assert.NoError(t, Admit())
}
