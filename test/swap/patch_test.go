package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func dialGo(t *testing.T) []byte {
	t.Helper()
	s := &swap{tool: goTool{path: "go"}}
	env, err := s.tool.variables(t.Context(), "GOROOT")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(env["GOROOT"], "src", "net", "dial.go"))
	require.NoError(t, err)
	return text
}

func TestPatchKeepsLines(t *testing.T) {
	before := dialGo(t)
	after, err := patch(before, runtime.Version())
	require.NoError(t, err)
	var changed []string
	was := strings.Split(string(before), "\n")
	for i, line := range strings.Split(string(after), "\n") {
		if line != was[i] {
			assert.Contains(t, line, was[i])
			changed = append(changed, strings.TrimPrefix(line, was[i]))
		}
	}
	assert.Equal(t, []string{
		" if SwapDial != nil && swaps(ctx, network) { return SwapDial(ctx, d, network, address) };",
		" if SwapListen != nil && swaps(ctx, network) { return SwapListen(ctx, lc, network, address) };",
	}, changed)
}

func TestPatchRefusesUnknownShape(t *testing.T) {
	dial := "func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {"
	for _, tt := range []struct{ name, old, new, err string }{
		{"gone", dial, strings.Replace(dial, "DialContext", "DialCtx", 1),
			"go9.99: net/dial.go has no (*Dialer).DialContext"},
		{"receiver", dial, strings.Replace(dial, "*Dialer", "Dialer", 1),
			"go9.99: net/dial.go has no (*Dialer).DialContext"},
		{"parameter", dial, strings.Replace(dial, "address string", "address string, hint Addr", 1),
			"go9.99: net/dial.go: (*Dialer).DialContext is not a method with the parameters"},
		{"name", dial, strings.Replace(dial, "network,", "_,", 1),
			"go9.99: net/dial.go: (*Dialer).DialContext is not a method with the parameters"},
		{"result", "network, address string) (Listener, error) {", "network, address string) (*TCPListener, error) {",
			"go9.99: net/dial.go: (*ListenConfig).Listen is not a method with the parameters"},
		{"no Go", dial, "func {", "go9.99: net/dial.go: dial.go:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := dialGo(t)
			require.Contains(t, string(text), tt.old)
			_, err := patch(bytes.Replace(text, []byte(tt.old), []byte(tt.new), 1), "go9.99")
			assert.ErrorContains(t, err, tt.err)
		})
	}
}
