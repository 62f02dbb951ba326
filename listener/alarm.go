package listener

import (
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// alarm calls a function once, after a time that may be moved. Guarded by Listener.mu.
//
// The runtime ends a program that stops a timer of a synctest bubble outside it, so an alarm that was
// set in one and is stopped outside may still ring there.
type alarm struct {
	timer  *time.Timer // nil: it is not set
	inside bool        // timer belongs to a bubble
}

// set makes the alarm call f after d, and not at an earlier set's time.
func (a *alarm) set(d time.Duration, f func()) {
	a.stop()
	a.timer, a.inside = time.AfterFunc(d, f), bubble.Inside()
}

// stop reports whether it has kept the alarm from ringing.
func (a *alarm) stop() bool {
	stopped := a.timer != nil && a.inside == bubble.Inside() && a.timer.Stop()
	a.timer = nil
	return stopped
}
