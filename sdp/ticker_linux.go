package sdp

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ticker is the idle monitor's clock: a descriptor that the kernel makes readable. A timer of
// the runtime would set an alarm in the kernel whenever a thread parks, which on a virtual
// machine costs a round trip over a socket a quarter of its time.
type ticker struct {
	file     *os.File
	fallback *time.Ticker // used if there is no descriptor
}

func newTicker(d time.Duration) *ticker {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &ticker{fallback: time.NewTicker(d)}
	}
	period := unix.NsecToTimespec(int64(d))
	t := &ticker{file: os.NewFile(uintptr(fd), "timerfd")}
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: period, Value: period}, nil); err != nil {
		t.stop()
		return &ticker{fallback: time.NewTicker(d)}
	}
	return t
}

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
