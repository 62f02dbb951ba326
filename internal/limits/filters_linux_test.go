package limits

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFiltersIn: what a kernel's text says.
func TestFiltersIn(t *testing.T) {
	for _, v := range []struct {
		status string
		n      int
		ok     bool
	}{
		{"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nThreads:\t1", 3, true},
		{"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0", 0, true},
		{"Name:\tx\nSeccomp:\t2\nThreads:\t1", 0, false}, // older than 5.9
		{"Name:\tSeccomp_filters:\t1", 0, false},
		{"Name:\tx\nSeccomp_filters:\tmany", 0, false},
	} {
		n, ok := filtersIn(v.status)
		assert.Equal(t, v.ok, ok, v.status)
		if ok {
			assert.Equal(t, v.n, n, v.status)
		}
	}
}

const childVariable = "LIMITS_TEST_FILTERS" // set: this process is TestFilters' child

// TestFilters: each filter that a process installs counts. A child installs them, because a
// filter stays.
func TestFilters(t *testing.T) {
	before, ok := Filters()
	require.True(t, ok)
	if os.Getenv(childVariable) == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		child := exec.Command(self, "-test.run=^TestFilters$")
		child.Env = append(os.Environ(), childVariable+"="+strconv.Itoa(before))
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	assert.Equal(t, os.Getenv(childVariable), strconv.Itoa(before), "a child inherits them")
	for i := range 2 {
		installFilter(t)
		n, ok := Filters()
		require.True(t, ok)
		assert.Equal(t, before+i+1, n)
	}
}

// installFilter installs a filter that allows everything, on all threads.
func installFilter(t *testing.T) {
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}} // SECCOMP_RET_ALLOW
	program := unix.SockFprog{Len: uint16(len(allow)), Filter: &allow[0]}
	runtime.LockOSThread() // no_new_privs is the thread's until the filter is everyone's
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	const setModeFilter, tsync = 1, 1
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&program)))
	require.Zero(t, errno)
}

func BenchmarkFilters(b *testing.B) {
	for b.Loop() {
		Filters()
	}
}
