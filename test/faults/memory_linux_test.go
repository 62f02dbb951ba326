package faults

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// noMore leaves the process that many bytes of address space beyond what it has.
// What it maps, and what its runtime takes for its heap, fails beyond that with
// ENOMEM.
func noMore(t *testing.T, k *child, bytes uint64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
	if os.IsNotExist(err) {
		return // it has ended
	}
	require.NoError(t, err)
	var size uint64
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmSize:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			require.NoError(t, err)
			size = kb << 10
		}
	}
	limitMemory(k, size+bytes)
}

// enough takes the limit away.
func enough(k *child) { limitMemory(k, unix.RLIM_INFINITY) }

// limitMemory leaves one that is gone alone.
func limitMemory(k *child, bytes uint64) {
	unix.Prlimit(k.cmd.Process.Pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil)
}

// TestNoMappings has one process, or the other, be refused the memory that a channel
// of shm takes: the connection stays on iwarp, or fails saying why if it must not;
// and once there is memory again, all is as before.
func TestNoMappings(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector maps memory of its own, and ends the process when it is refused")
	}
	for _, side := range []string{"client", "server"} {
		for _, devices := range []string{"shm", "shm,iwarp"} {
			t.Run(side+"/"+devices, func(t *testing.T) {
				// A thread that the runtime wants takes less than the 900 KB below.
				few, thin := []string{"GOMAXPROCS=1"}, []string{"sh", "-c", `ulimit -s 256; exec "$0"`}
				server := start(t, "serve shm,iwarp 127.0.0.1:0", few, thin...)
				client := start(t, "work shm "+server.first+" 0", few, thin...)
				k := client
				if side == "server" {
					k = server
				}
				for range 4 { // both have all else that they need
					require.Equal(t, "iwarp", client.session(t, "iwarp"))
				}
				noMore(t, k, 900<<10) // an area takes more
				said := client.session(t, devices)
				enough(k)
				switch {
				case devices == "shm" && side == "server": // which refuses, and knows why
					assert.Contains(t, said, "it rejected the MPA Request")
				case devices == "shm":
					assert.Contains(t, said, "mmap: cannot allocate memory")
				default:
					assert.Equal(t, "iwarp", said)
				}
				assert.Equal(t, "shm", client.session(t, devices))
			})
		}
	}
}

// outOfMemory is what a process that had to end for want of memory may have said:
// the runtime, of its heap or of a thread, and the race detector. Go 1.26's collector
// does not look whether it got memory for a queue.
var outOfMemory = regexp.MustCompile(`addr=0x0\s+goroutine 0 .*\s+runtime\.\(\*spanQueue\)|out of memory|cannot allocate memory|failed to create new OS thread|pthread_create failed|failed to (allocate|mmap)|ThreadSanitizer`)

// TestNoMemory has one process, or the other, be refused more memory under load. It
// goes on with what it has, or ends because its runtime has to; whichever it is, no
// byte was wrong, every call of the other one returns, and nothing is left.
func TestNoMemory(t *testing.T) {
	for _, device := range append([]string{"shm,iwarp"}, deviceNames...) {
		for _, side := range []string{"client", "server"} {
			t.Run(device+"/"+side, func(t *testing.T) {
				var said [2]lockedBuffer // by the two
				l := &load{server: startSaying(t, &said[0], "serve "+device+" 127.0.0.1:0", nil)}
				l.client = startSaying(t, &said[1], fmt.Sprint("work ", device, " ", l.server.first, " ", workers), nil)
				l.begin(t)
				k, why, other, before := l.client, &said[1], l.server, l.serverBefore
				if side == "server" {
					k, why, other, before = l.server, &said[0], l.client, l.heldBefore
				}
				other.killed = true // k may end
				ended := make(chan struct{})
				go func() { k.wait(); close(ended) }()
				gone := false
				for i := 0; i < less(8, 4) && !gone; i++ {
					noMore(t, k, uint64(i)<<19)
					select {
					case <-ended:
						gone = true
					case <-time.After(100 * time.Millisecond):
					}
					other.report(t) // it answers, and no byte was wrong
				}
				enough(k)
				want := 0 // sessions, when all is to be well
				require.True(t, within(time.Minute, func() bool {
					select {
					case <-ended:
						gone = true
						return true
					default:
					}
					r, err := l.client.ask() // which may be about to end
					if err == nil && want == 0 {
						want = r.good + 2*workers
					}
					return err == nil && r.good >= want
				}), "neither does it go on nor end")
				if !gone {
					l.leavesNothing(t)
					r := l.client.report(t)
					t.Logf("it went on; %d sessions, %d have failed, the last with %s", r.good, r.bad, r.last)
					return
				}
				assert.Regexp(t, outOfMemory, why.String())
				if side == "server" {
					other.tell(t, "pause")
				}
				leftNothing(t, side+"'s peer", other, before)
				r := other.report(t)
				t.Logf("it has ended; %d sessions of the other, %d have failed, the last with %s", r.good, r.bad, r.last)
			})
		}
	}
}

// lockedBuffer is what a process has said so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
