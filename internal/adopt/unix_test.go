package adopt

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The copy must be that of the version in go.mod. To renew it, copy the files that this
// test names from that module.
func TestUnixIsTheModules(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(out))
	theirs, err := os.ReadDir(dir)
	require.NoError(t, err)
	want := map[string]bool{"LICENSE": true}
	for _, e := range theirs {
		name := e.Name()
		if ext := filepath.Ext(name); ext != ".go" && ext != ".s" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		if !definitelyGc(name, text) {
			continue
		}
		want[name] = true
		have, err := unix.ReadFile("_unix/" + name)
		require.NoError(t, err, "%s is missing", name)
		require.Equal(t, string(text), string(have), "%s is not that of %s", name, dir)
	}
	ours, err := unix.ReadDir("_unix")
	require.NoError(t, err)
	for _, e := range ours {
		require.True(t, want[e.Name()], "%s is not needed", e.Name())
	}
}

// definitelyGc reports whether the compiler gc may build a file, on the two architectures.
func definitelyGc(name string, text []byte) bool {
	return builds(name, text, func(tag string) bool {
		return tag == "race" || tag == "amd64" || tag == "arm64"
	})
}
