package gosdp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTestsThatARM64LeavesOutExist: after a test was renamed, make arm64 would run it.
func TestTestsThatARM64LeavesOutExist(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	skip := regexp.MustCompile(`(?m)^ARM64_SKIP := (.*)$`).FindSubmatch(text)
	require.NotNil(t, skip)
	var names []string
	files, err := filepath.Glob("rdma/shm/*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(source, -1) {
			names = append(names, string(m[1]))
		}
	}
	require.NotEmpty(t, names)
	for pattern := range strings.SplitSeq(strings.ReplaceAll(string(skip[1]), "$$", "$"), "|") {
		assert.True(t, slices.ContainsFunc(names, regexp.MustCompile(pattern).MatchString), "%s: no such test in rdma/shm", pattern)
	}
}
