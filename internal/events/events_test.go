package events

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLogOnceForEachKeyAndMinute(t *testing.T) {
	synctest.Test(t, logOnceForEachKeyAndMinute)
}

func logOnceForEachKeyAndMinute(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	var l Limiter
	for range 10 {
		l.Log(log, slog.LevelInfo, "a", "event a", "reason", "x")
		l.Log(log, slog.LevelInfo, "b", "event b")
		l.Log(log, slog.LevelDebug, "c", "event c")
	}
	require.Equal(t, 2, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), `msg="event a" reason=x`)
	l.Log(nil, slog.LevelInfo, "d", "nobody is told")
	time.Sleep(interval)
	l.Log(log, slog.LevelInfo, "a", "event a")
	require.Equal(t, 3, strings.Count(text.String(), "\n"))
}

func TestMayIsBoundedAndForgets(t *testing.T) {
	var l Limiter
	now := time.Now()
	count := 0
	for i := range 1000 {
		if l.may(fmt.Sprint(i), now) {
			count++
		}
	}
	require.Equal(t, maxKeys, count)
	require.Len(t, l.last, maxKeys)
	require.False(t, l.may("0", now.Add(interval-1)))
	require.True(t, l.may("0", now.Add(interval)))
	require.True(t, l.may("new", now.Add(interval)))
	require.Less(t, len(l.last), 5)
}
