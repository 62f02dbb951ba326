package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files is a module with tests to repeat.
var files = map[string]string{
	"go.mod": "module m\n",
	"plain/plain_test.go": `package plain
import "testing"
func TestPlain(t *testing.T) {}
`,
	"both/both_test.go": `package both
import ("os"; "testing")
func TestOften(t *testing.T) {
	if _, err := os.Stat("fails-on-" + os.Getenv("SDP_DEVICES")); err == nil {
		t.Fatal("as it was told")
	}
}
func TestSeldom(t *testing.T) {}
`,
	"none/none.go":    "package none\n",
	"program/main.go": "package main\nfunc main() {}\n",
}

// newRepeat returns a repeat for that module that prints to the buffer.
func newRepeat(t *testing.T) (*repeat, *bytes.Buffer) {
	t.Helper()
	// Ignore a workspace that contains the temporary directory.
	t.Setenv("GOWORK", "off")
	r := &repeat{
		times: 3, few: 2, beside: 2, timeout: time.Minute, soak: time.Second,
		dir: t.TempDir(), root: t.TempDir(), devices: []string{"iwarp", "shm"},
		subjects: []subject{
			{name: "both", devices: true, seldom: "^TestSeldom$"},
			{name: "plain"},
			{name: "none"},
			{name: "program", seldom: ".", program: true},
		},
	}
	for name, text := range files {
		r.file(t, name, text)
	}
	out := new(bytes.Buffer)
	r.out = out
	return r, out
}

func (r *repeat) file(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(r.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

// rows parses the summary from the output, without times.
func rows(t *testing.T, out *bytes.Buffer) (all []row) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &all), out)
	for i := range all {
		all[i].Seconds, all[i].CPU = 0, 0
	}
	out.Reset()
	return all
}

// runs returns the number of runs in the record.
func (r *repeat) runs(t *testing.T) int {
	t.Helper()
	all, err := os.ReadFile(filepath.Join(r.dir, "runs.jsonl"))
	require.NoError(t, err)
	return strings.Count(string(all), `"ok":`)
}

func TestNumbersOfRuns(t *testing.T) {
	r, out := newRepeat(t)
	require.NoError(t, r.run(context.Background(), ""))
	assert.Equal(t, []row{
		{What: "both", Device: "iwarp", Wanted: 3, Runs: 3},
		{What: "both, kill and scale", Device: "iwarp", Wanted: 2, Runs: 2},
		{What: "both", Device: "shm", Wanted: 3, Runs: 3},
		{What: "both, kill and scale", Device: "shm", Wanted: 2, Runs: 2},
		{What: "plain", Wanted: 3, Runs: 3},
		{What: "program", Wanted: 2, Runs: 2},
	}, rows(t, out))
	assert.Equal(t, 15, r.runs(t))
}

func TestFailuresAreKept(t *testing.T) {
	r, out := newRepeat(t)
	r.file(t, "both/fails-on-shm,iwarp", "")
	require.Equal(t, errFailures, r.run(context.Background(), "both"))
	all := rows(t, out)
	assert.Zero(t, all[0].Failures)
	assert.Equal(t, row{What: "both", Device: "shm", Wanted: 3, Runs: 3, Failures: 3}, all[2])
	kept, err := filepath.Glob(filepath.Join(r.dir, "failures", "both-shm-*"))
	require.NoError(t, err)
	require.Len(t, kept, 3)
	output, err := os.ReadFile(kept[0])
	require.NoError(t, err)
	assert.Contains(t, string(output), "as it was told")
}

func TestContinuesAfterInterruption(t *testing.T) {
	r, out := newRepeat(t)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, r.run(cancelled, "plain"))
	assert.NoFileExists(t, filepath.Join(r.dir, "runs.jsonl"), "nothing must be compiled")

	require.NoError(t, r.run(context.Background(), "plain"))
	require.Equal(t, 3, r.runs(t))
	require.NoError(t, r.run(context.Background(), "plain"))
	assert.Equal(t, 3, r.runs(t), "all runs were already done")

	f, err := os.OpenFile(filepath.Join(r.dir, "runs.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"what":"plain","bui`) // an incomplete line, as after a kill
	require.NoError(t, err)
	require.NoError(t, f.Close())
	r.times = 5
	require.NoError(t, r.run(context.Background(), "plain"))
	require.NoError(t, r.run(context.Background(), "plain"))
	assert.Equal(t, 5, r.runs(t))
	out.Reset()

	r.file(t, "plain/plain_test.go", files["plain/plain_test.go"]+"func TestMore(t *testing.T) {}\n")
	require.NoError(t, r.run(context.Background(), "plain"))
	assert.Equal(t, []row{{What: "plain", Wanted: 5, Runs: 5}}, rows(t, out))
	assert.Equal(t, 10, r.runs(t), "runs of the old program do not count")
}
