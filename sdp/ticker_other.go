//go:build !linux

package sdp

import "time"

// ticker is the idle monitor's clock.
type ticker struct{ *time.Timer }

func newTicker() *ticker              { return &ticker{time.NewTimer(time.Hour)} }
func (t *ticker) set(d time.Duration) { t.Reset(d) }
func (t *ticker) wait()               { <-t.C }
func (t *ticker) stop()               { t.Stop() }
