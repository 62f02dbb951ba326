package adoption

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostWeight limits by how many bytes SDP makes a program larger that was linked with -s -w. It is ten
// times what it is: a program that links to what it does not need exceeds it.
const mostWeight = 16_000_000

// TestWeight prints how much larger SDP makes a program.
func TestWeight(t *testing.T) {
	want(t, "all")
	for name, source := range map[string]string{"web": web, "net": dial} {
		t.Run(name, func(t *testing.T) {
			dir := module(t, map[string]string{"main.go": source})
			size := func(program string) int64 {
				info, err := os.Stat(filepath.Join(dir, program))
				require.NoError(t, err)
				return info.Size()
			}
			run(t, dir, env(), "go", "build", "-o", "debug-without", ".")
			run(t, dir, env(), sdp(t), "build", "-o", "debug-with", ".")
			run(t, dir, env(), "go", "build", "-ldflags=-s -w", "-o", "without", ".")
			run(t, dir, env(), sdp(t), "build", "-ldflags=-s -w", "-o", "with", ".")
			t.Logf("with debug information %d and %d bytes: %d more", size("debug-without"), size("debug-with"), size("debug-with")-size("debug-without"))
			more := size("with") - size("without")
			t.Logf("without it %d and %d bytes: %d more", size("without"), size("with"), more)
			require.Less(t, more, int64(mostWeight))
		})
	}
}

// dial is about the smallest program that uses package net.
const dial = `package main

import (
	"net"
	"os"
)

func main() {
	c, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	c.Write([]byte("x"))
}
`
