//go:build !linux

// Package ticker is the clock of goroutines that visit connections now and then.
package ticker

import (
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// Ticker is such a clock.
type Ticker struct{ timer *time.Timer }

// New returns a Ticker. Only one goroutine may call its Wait.
func New() *Ticker { return &Ticker{time.NewTimer(time.Hour)} }

// Wait waits until the time that Set has set.
func (t *Ticker) Wait() { <-t.timer.C }

// Stop stops the clock.
func (t *Ticker) Stop() { t.timer.Stop() }

// Set makes Wait return in d, and not earlier.
func (t *Ticker) Set(d time.Duration) {
	if !bubble.Inside() { // by a bubble's clock it would ring in decades, and so it rings when it was to before
		t.timer.Reset(d)
	}
}
