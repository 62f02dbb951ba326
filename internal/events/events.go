// Package events logs events that may repeat endlessly, such as a reason why connections do not use
// SDP, at most once a minute for each reason.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"os"
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
	mu         sync.Mutex
	last       map[string]time.Time
	complained map[string]bool // variables of which standard error was told
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

// Complain reports why what a variable of the environment asks for was not done: in the log, or, if the
// program has no Logger, as all that "sdp go" has built, once on standard error.
func (l *Limiter) Complain(log *slog.Logger, variable, message string, err error) {
	if log != nil {
		l.Log(log, slog.LevelWarn, variable, message, "variable", variable, "error", err)
	} else if l.first(variable) {
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", message, variable, err)
	}
}

// first reports whether there was no complaint of the variable.
func (l *Limiter) first(variable string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.complained[variable] {
		return false
	}
	if l.complained == nil {
		l.complained = make(map[string]bool)
	}
	l.complained[variable] = true
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
