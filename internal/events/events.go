// Package events logs events that may repeat endlessly, such as a reason why connections do not use
// SDP, at most once a minute for each reason.
package events

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// interval is how often the same event is logged.
	interval = time.Minute
	// maxKeys limits how many different events are remembered, because a peer may cause events
	// with ever new texts.
	maxKeys = 64
)

// A Limiter remembers recent events. The zero value is ready to use. It is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Process is the limiter of this process.
var Process Limiter

// Log logs the event if the level is enabled and no event with the same key was logged
// within the last minute. It reports whether it did.
func (l *Limiter) Log(log *slog.Logger, level slog.Level, key, message string, args ...any) bool {
	if log == nil || !log.Enabled(context.Background(), level) || !l.may(key, time.Now()) {
		return false
	}
	log.Log(context.Background(), level, message, args...)
	return true
}

func (l *Limiter) may(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.last[key]; ok && now.Sub(at) < interval {
		return false
	}
	if len(l.last) >= maxKeys {
		for k, at := range l.last {
			if now.Sub(at) >= interval {
				delete(l.last, k)
			}
		}
	}
	if len(l.last) >= maxKeys {
		return false
	}
	if l.last == nil {
		l.last = make(map[string]time.Time)
	}
	l.last[key] = now
	return true
}
