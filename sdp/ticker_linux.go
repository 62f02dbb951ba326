package sdp

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/bubble"
)

// ticker is the idle monitor's clock: a descriptor that the kernel makes readable. A timer of
// the runtime would set an alarm in the kernel whenever a thread parks, which on a virtual
// machine costs a round trip over a socket a quarter of its time.
type ticker struct {
	file     *os.File
	fd       int         // file's
	fallback *time.Timer // used if there is no descriptor
}

func newTicker() *ticker {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &ticker{fallback: time.NewTimer(time.Hour)}
	}
	return &ticker{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
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
	unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

// wait waits until the time that set has set.
func (t *ticker) wait() {
	if t.fallback != nil {
		<-t.fallback.C
		return
	}
	var expirations [8]byte
	t.file.Read(expirations[:])
}

func (t *ticker) stop() {
	if t.fallback != nil {
		t.fallback.Stop()
		return
	}
	t.file.Close()
}
