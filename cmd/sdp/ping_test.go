package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPingKeepsWhatItMeasured before the server fell silent, and does not ask whether there is one.
func TestPingKeepsWhatItMeasured(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	silence := make(chan func(), 1) // what the tool does when its patience ends
	answers := make(chan int, 1)    // after the request's bytes
	go func() {
		for n := range answers {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			io.CopyN(io.Discard, c, 16)
			for range n {
				io.CopyN(c, c, 1)
			}
			io.CopyN(io.Discard, c, 1) // the answers before have arrived
			(<-silence)()
		}
	}()
	defer close(answers)
	defer func(to *output) { stdout, afterFunc = to, time.AfterFunc }(stdout)
	afterFunc = func(_ time.Duration, f func()) *time.Timer {
		silence <- f
		return time.NewTimer(time.Hour)
	}
	ping := func() (printed string, err error) {
		t.Helper()
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		require.NoError(t, err)
		defer out.Close()
		stdout = &output{to: out}
		failed := (&pingFlags{count: 1000, size: 1, ways: "tcp"}).run(ln.Addr().String())
		b, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		return string(b), failed
	}

	answers <- 20 + 5 // the first ones do not count
	printed, err := ping()
	assert.EqualError(t, err, "no measurement completed")
	assert.Regexp(t, `(?m)^tcp +5 `, printed)
	assert.Contains(t, printed, "not all of tcp: peer stopped answering\n")

	answers <- 0
	printed, err = ping()
	assert.EqualError(t, err, "nothing could be measured; is sdp perf -s running there?")
	assert.Contains(t, printed, "not tcp: peer stopped answering\n")
}

// TestSizesOfFlags have the units of the environment's.
func TestSizesOfFlags(t *testing.T) {
	var f perfFlags
	rest, err := parseFlags(lookup("perf"), []string{"-block", "64K", "localhost"}, f.define)
	require.NoError(t, err)
	assert.Equal(t, []string{"localhost"}, rest)
	assert.Equal(t, 64<<10, f.block)
	assert.Equal(t, 64, f.size)
	_, err = parseFlags(lookup("ping"), []string{"-size", "1MB"}, new(pingFlags).define)
	assert.Equal(t, exitStatus(2), err)
}
