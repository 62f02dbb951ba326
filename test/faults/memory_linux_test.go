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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// limitAddressSpace limits the process to the given number of bytes of address space more
// than it has now. Beyond that, mappings and growing the runtime's heap fail with ENOMEM.
func limitAddressSpace(t *testing.T, k *child, bytes uint64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
	if os.IsNotExist(err) {
		return // the process has ended
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
	setAddressSpace(k, size+bytes)
}

// unlimitAddressSpace removes the limit.
func unlimitAddressSpace(k *child) { setAddressSpace(k, unix.RLIM_INFINITY) }

// setAddressSpace sets the limit, unless the process has ended.
func setAddressSpace(k *child, bytes uint64) {
	unix.Prlimit(k.cmd.Process.Pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil)
}

// outOfMemory matches the errors of a process that ended because memory was exhausted:
// those of the runtime, about its heap or a thread, and those of the race detector. Go
// 1.26's garbage collector does not check whether it got memory for a queue.
var outOfMemory = regexp.MustCompile(`addr=0x0\s+goroutine 0 .*\s+runtime\.\(\*spanQueue\)|out of memory|cannot allocate memory|failed to create new OS thread|pthread_create failed|failed to (allocate|mmap)|ThreadSanitizer`)

// TestNoMemory: one process gets no more memory while under load. It continues with what it
// has, or its runtime ends it. In either case no byte is wrong, every call of the other
// process returns, and nothing leaks.
func TestNoMemory(t *testing.T) {
	for _, device := range deviceNames {
		if testing.Short() && device != "shm" {
			continue
		}
		for _, side := range []string{"client", "server"} {
			t.Run(device+"/"+side, func(t *testing.T) {
				var said [2]lockedBuffer // standard error of both
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
				for i := 0; i < shorten(8, 4) && !gone; i++ {
					limitAddressSpace(t, k, uint64(i)<<19)
					for range shorten(4, 1) {
						other.report(t) // it still answers, and no byte was wrong
					}
					select {
					case <-ended:
						gone = true
					default:
					}
				}
				unlimitAddressSpace(k)
				want := 0 // the number of sessions that shows recovery
				require.True(t, eventually(func() bool {
					select {
					case <-ended:
						gone = true
						return true
					default:
					}
					r, err := l.client.tryReport() // the process may be about to end
					if err == nil && want == 0 {
						want = r.good + 2*workers
					}
					return err == nil && r.good >= want
				}), "the process neither continues nor ends")
				if !gone {
					l.checkNoLeaks(t)
					r := l.client.report(t)
					t.Logf("the process continued; %d sessions succeeded, %d failed, the last with %s", r.good, r.bad, r.last)
					return
				}
				assert.Regexp(t, outOfMemory, why.String())
				if side == "server" {
					other.command(t, "pause")
				}
				requireNoLeaks(t, side+"'s peer", other, before)
				r := other.report(t)
				t.Logf("the process ended; %d sessions of the other succeeded, %d failed, the last with %s", r.good, r.bad, r.last)
			})
		}
	}
}

// lockedBuffer is a bytes.Buffer that is safe for concurrent use.
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
