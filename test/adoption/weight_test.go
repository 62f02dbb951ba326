package adoption

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWeight prints how much larger SDP makes a program that is linked with -s -w. A program that refers to SDP
// over RDMA exceeds the limits.
func TestWeight(t *testing.T) {
	want(t, "short")
	for name, v := range map[string]struct {
		source string
		most   int64
	}{"web": {web, 1_000_000}, "net": {dial, 1_400_000}} {
		t.Run(name, func(t *testing.T) {
			dir := module(t, map[string]string{"main.go": v.source})
			size := func(program string) int64 {
				info, err := os.Stat(filepath.Join(dir, program))
				require.NoError(t, err)
				return info.Size()
			}
			run(t, dir, env(), "go", "build", "-ldflags=-s -w", "-o", "without", ".")
			run(t, dir, env(), sdp(t), "build", "-ldflags=-s -w", "-o", "with", ".")
			more := size("with") - size("without")
			t.Logf("%d and %d bytes: %d more", size("without"), size("with"), more)
			require.Less(t, more, v.most)
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
