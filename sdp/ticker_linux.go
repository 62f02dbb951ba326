package sdp

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/bubble"
)

// ticker is the idle monitor's clock: a descriptor that the kernel makes readable. A timer of
// the runtime would set an alarm in the kernel whenever a thread parks, which on a virtual
// machine costs a round trip over a socket a quarter of its time.
//
// Its system calls are raw. None of them blocks, and if the runtime knew that one begins, it
// would wake the thread that watches system calls, which then looks every 20 µs for a while.
type ticker struct {
	file     *os.File
	rc       syscall.RawConn             // file's
	fd       uintptr                     // likewise
	parked   bool                        // a call of wait has parked
	expired  func(fd uintptr) (yes bool) // made once, so that wait allocates nothing
	fallback *time.Timer                 // used if there is no descriptor
}

func newTicker() *ticker {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &ticker{fallback: time.NewTimer(time.Hour)}
	}
	t := &ticker{file: os.NewFile(uintptr(fd), "timerfd"), fd: uintptr(fd)}
	if t.file.SetDeadline(time.Time{}) != nil { // the runtime does not poll it, so wait would not wait
		t.file.Close()
		return &ticker{fallback: time.NewTimer(time.Hour)}
	}
	t.rc, _ = t.file.SyscallConn() // it fails only for a nil File
	t.expired = t.hasExpired
	return t
}

// set makes wait return in d, and not earlier.
func (t *ticker) set(d time.Duration) {
	if t.fallback != nil {
		if !bubble.Inside() { // by a bubble's clock it would ring in decades, and so it rings when it was to before
			t.fallback.Reset(d)
		}
		return
	}
	// It fails only for arguments that are not used here.
	until := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, t.fd, 0, uintptr(unsafe.Pointer(&until)), 0, 0, 0)
}

// wait waits until the time that set has set.
func (t *ticker) wait() {
	if t.fallback != nil {
		<-t.fallback.C
		return
	}
	t.parked = false
	t.rc.Read(t.expired)
}

// hasExpired is the callback of RawConn.Read. It need not read what ended the parking, because
// set clears it.
func (t *ticker) hasExpired(fd uintptr) (yes bool) {
	if t.parked {
		return true
	}
	t.parked = true
	var expirations [8]byte
	n, _, _ := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expirations)), uintptr(len(expirations)))
	return n == uintptr(len(expirations))
}

func (t *ticker) stop() {
	if t.fallback != nil {
		t.fallback.Stop()
		return
	}
	t.file.Close()
}
