//go:build !linux

package sdp

import (
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// ticker is the idle monitor's clock.
type ticker struct{ *time.Timer }

func newTicker() *ticker { return &ticker{time.NewTimer(time.Hour)} }
func (t *ticker) wait()  { <-t.C }
func (t *ticker) stop()  { t.Stop() }

func (t *ticker) set(d time.Duration) {
	if !bubble.Inside() { // by a bubble's clock it would ring in decades, and so it rings when it was to before
		t.Reset(d)
	}
}
