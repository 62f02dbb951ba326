package adoption

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostWeight limits by how many bytes SDP makes a program larger that was linked with -s -w. A program that
// refers to SDP over RDMA exceeds it.
const mostWeight = 1_000_000

// TestWeight prints how much larger SDP makes a program.
func TestWeight(t *testing.T) {
	want(t, "short")
	for name, source := range map[string]string{"web": web, "net": dial} {
		t.Run(name, func(t *testing.T) {
			dir := module(t, map[string]string{"main.go": source})
			size := func(program string) int64 {
				info, err := os.Stat(filepath.Join(dir, program))
				require.NoError(t, err)
				return info.Size()
			}
			run(t, dir, env(), "go", "build", "-ldflags=-s -w", "-o", "without", ".")
			run(t, dir, env(), sdp(t), "build", "-ldflags=-s -w", "-o", "with", ".")
			more := size("with") - size("without")
			t.Logf("%d and %d bytes: %d more", size("without"), size("with"), more)
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
