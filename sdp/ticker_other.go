//go:build !linux

package sdp

import "time"

// ticker is the idle monitor's clock.
type ticker struct{ *time.Ticker }

func newTicker(d time.Duration) *ticker { return &ticker{time.NewTicker(d)} }
func (t *ticker) wait()                 { <-t.C }
func (t *ticker) stop()                 { t.Stop() }
