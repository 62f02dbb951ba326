// Package ticker is the clock of goroutines that visit connections now and then.
package ticker

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/bubble"
)

// Ticker is such a clock: a descriptor that the kernel makes readable. A timer of
// the runtime would set an alarm in the kernel whenever a thread parks, which on a virtual
// machine costs a round trip over a socket a quarter of its time.
//
// Its system calls are raw. None of them blocks, and if the runtime knew that one begins, it
// would wake the thread that watches system calls, which then looks every 20 µs for a while.
type Ticker struct {
	file     *os.File
	rc       syscall.RawConn             // file's
	fd       uintptr                     // likewise
	parked   bool                        // a call of Wait has parked
	expired  func(fd uintptr) (yes bool) // made once, so that Wait allocates nothing
	fallback *time.Timer                 // used if there is no descriptor
}

// New returns a Ticker. Only one goroutine may call its Wait.
func New() *Ticker {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &Ticker{fallback: time.NewTimer(time.Hour)}
	}
	t := &Ticker{file: os.NewFile(uintptr(fd), "timerfd"), fd: uintptr(fd)}
	if t.file.SetDeadline(time.Time{}) != nil { // the runtime does not poll it, so Wait would not wait
		t.file.Close()
		return &Ticker{fallback: time.NewTimer(time.Hour)}
	}
	t.rc, _ = t.file.SyscallConn() // it fails only for a nil File
	t.expired = t.hasExpired
	return t
}

// Set makes Wait return in d, and not earlier.
func (t *Ticker) Set(d time.Duration) {
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

// Wait waits until the time that Set has set, and may return earlier.
func (t *Ticker) Wait() {
	if t.fallback != nil {
		<-t.fallback.C
		return
	}
	t.parked = false
	t.rc.Read(t.expired)
}

// hasExpired is the callback of RawConn.Read. It need not read what ended the parking, because
// Set clears it.
func (t *Ticker) hasExpired(fd uintptr) (yes bool) {
	if t.parked {
		return true
	}
	t.parked = true
	var expirations [8]byte
	n, _, _ := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expirations)), uintptr(len(expirations)))
	return n == uintptr(len(expirations))
}

// Stop releases the descriptor.
func (t *Ticker) Stop() {
	if t.fallback != nil {
		t.fallback.Stop()
		return
	}
	t.file.Close()
}
