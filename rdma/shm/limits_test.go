//go:build linux

package shm

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// TestMappingsAreCountedNowAndThen: a count is good for some areas, and then for a while; near the
// limit, for few areas.
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
	assert.Error(t, m.fits(), "it is not counted for each")
	m.at = time.Now().Add(-2 * countShare * time.Hour)
	assert.NoError(t, m.fits())
	counts = 0
	m.took = 0 // the count is too old at once
	for range leastMade + 1 {
		assert.NoError(t, m.take())
		assert.Zero(t, counts, "few areas were mapped since the last one")
	}
	assert.NoError(t, m.fits())
	assert.Equal(t, 1, counts)

	n = 58_977
	assert.NoError(t, m.fits())
	m.at = time.Now().Add(-2 * countLong)
	assert.Error(t, m.fits(), "the program has mapped memory itself")
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

// TestMappingsBetweenCounts: areas count before they are in a count.
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

// TestNoChannelNearALimit: neither end makes a channel near a limit.
func TestNoChannelNearALimit(t *testing.T) {
	p := newPlace(t)
	ticket := newTicket() // no socket has this name, but Meet does not get that far
	t.Run("mappings", func(t *testing.T) {
		was := mapped.count
		full := func(yes bool) {
			mapped.mu.Lock()
			defer mapped.mu.Unlock()
			mapped.at, mapped.begin = time.Time{}, time.Time{}
			mapped.count = was
			if yes {
				mapped.count = func() (int, int) { return 65_000, 65_530 }
			}
		}
		full(true)
		defer full(false)
		_, err := p.Meet(rdma.Peer{}, ticket, 1)
		assert.ErrorContains(t, err, "max_map_count")
		_, err = device{}.Offer("", stepConfig)
		assert.ErrorContains(t, err, "max_map_count")
		_, _, err = newArea()
		assert.ErrorContains(t, err, "max_map_count")
	})
	t.Run("descriptors", func(t *testing.T) {
		var limit unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
		assert.NoError(t, descriptorFits(int(limit.Cur/2)))
		assert.ErrorContains(t, descriptorFits(int(limit.Cur/10*9)), "RLIMIT_NOFILE")
		lowLimit(t)
		for {
			f, err := os.Open(os.DevNull)
			require.NoError(t, err)
			defer f.Close()
			if f.Fd() > 115 {
				break
			}
		}
		_, err := device{}.Offer("", stepConfig)
		assert.ErrorContains(t, err, "RLIMIT_NOFILE")
		_, err = p.Meet(rdma.Peer{}, ticket, 1)
		assert.ErrorContains(t, err, "RLIMIT_NOFILE")
	})
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

// useUp opens descriptors until this process may have no more.
func useUp(t *testing.T) (all files) {
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			require.Equal(t, unix.EMFILE, err)
			return all
		}
		all = append(all, fd)
	}
}

// TestRoomForTheMemoryFile: if this process runs out of descriptors after the meeting, it takes the
// memory file nevertheless, because the client believes that the channel is open.
func TestRoomForTheMemoryFile(t *testing.T) {
	lowLimit(t)
	before := descriptors(t)
	p := newPlace(t)
	for _, waits := range []bool{false, true} { // for the decision
		c := meets(t, p)
		file := filesOf(t, "m")
		decide := func() {
			_, _, err := c.WriteMsgUnix(c.token.decision(0), unix.UnixRights(file...), nil)
			require.NoError(t, err)
			file.Close()
		}
		if !waits {
			decide()
		}
		used := useUp(t)
		over := make(chan rdma.QueuePair)
		go func() {
			q, err := c.w.Take(t.Context())
			assert.NoError(t, err)
			over <- q
		}()
		if waits {
			runtime.Gosched()
			decide()
		}
		q := <-over
		used.Close()
		require.NotNil(t, q)
		q.Abort()
		c.Close()
	}
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestNoRoomForTheMemoryFile: without a descriptor for it there is no meeting.
func TestNoRoomForTheMemoryFile(t *testing.T) {
	lowLimit(t)
	before := descriptors(t)
	o := newOffer(t, "", stepConfig)
	_, socket := halves(o.Ticket())
	fd, err := connect(socket)
	require.NoError(t, err)
	used := useUp(t)
	w := &pending{place: newPlace(t), fd: fd}
	err = w.open(&rdma.Peer{}, 0)
	used.Close()
	assert.ErrorIs(t, err, unix.EMFILE)
	closesEnd(t) // the client would wait
	assert.ErrorIs(t, failing(o), errLeft, "the client has no meeting")
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestStrangersTakeFewDescriptors: however many connect to the client's socket, it accepts none beyond its
// share of the limit.
func TestStrangersTakeFewDescriptors(t *testing.T) {
	lowLimit(t)
	before := descriptors(t)
	o := newOffer(t, "", stepConfig)
	_, socket := halves(o.Ticket())
	var strangers files
	for range 60 {
		fd, err := connect(socket)
		require.NoError(t, err)
		strangers = append(strangers, fd)
	}
	_, err := o.Take(1)
	assert.ErrorContains(t, err, "RLIMIT_NOFILE")
	o.Drop()
	strangers.Close()
	closesEnd(t)
	assert.LessOrEqual(t, descriptors(t), before)
}
