// Package slog is a small replacement for the parts of package log/slog that the library uses. It
// logs nothing, because there is no Config with which a program could ask for it.
package slog

import "context"

// A Level is the importance of an event.
type Level int

// The levels of package log/slog.
const (
	LevelDebug Level = -4
	LevelInfo  Level = 0
	LevelWarn  Level = 4
)

// A Logger logs nothing.
type Logger struct{}

// DiscardHandler replaces the handler of that name.
var DiscardHandler struct{}

// New returns a Logger.
func New(struct{}) *Logger { return new(Logger) }

// Enabled returns false.
func (*Logger) Enabled(context.Context, Level) bool { return false }

// Log does nothing.
func (*Logger) Log(context.Context, Level, string, ...any) {}

// Debug does nothing.
func (*Logger) Debug(string, ...any) {}

// Warn does nothing.
func (*Logger) Warn(string, ...any) {}
