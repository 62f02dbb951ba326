package report

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func TestDrawSkipsChartsWithoutData(t *testing.T) {
	r := someReport()
	for _, size := range []int{1 << 10, 1 << 20} {
		row := rowOf("tcp", 5, 6, 7)
		row.Size = size
		r.Rows = append(r.Rows, row)
	}
	dir := t.TempDir()
	files, err := r.Draw(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"overview.png", "rtt.png", "latency.png"}, files)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		_, err = png.Decode(bytes.NewReader(content))
		require.NoError(t, err)
	}
}

// TestDrawOneValue: with one contender, every ratio is 1.
func TestDrawOneValue(t *testing.T) {
	r := reportOf(rowOf("tcp", 1, 1, 1))
	for _, size := range []int{1 << 10, 1 << 20} {
		row := rowOf("tcp", 1, 1, 1)
		row.Size = size
		r.Rows = append(r.Rows, row)
	}
	files, err := r.Draw(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []string{"overview.png", "rtt.png", "latency.png"}, files)
}

func TestContendersHaveDistinctStyles(t *testing.T) {
	looks := map[any]string{}
	for _, c := range harness.Contenders {
		line, _ := styleOf(c.Name)
		require.NotContains(t, looks, line.Color, "%s looks like another one", c.Name)
		looks[line.Color] = c.Name
	}
	once, _ := styleOf("tcp")
	again, _ := styleOf("tcp#2")
	require.Equal(t, once.Color, again.Color)
	require.NotEqual(t, once.Dashes, again.Dashes)
}

func TestDecadesAreMarked(t *testing.T) {
	var labels []string
	for _, tick := range (decades{}).Ticks(3, 4000) {
		if tick.Label != "" {
			labels = append(labels, tick.Label)
		}
	}
	require.Equal(t, []string{"10", "100", "1000"}, labels)
	require.Len(t, (decades{}).Ticks(1, 10), 10)
}

func TestMarkdownReport(t *testing.T) {
	var out bytes.Buffer
	r := someReport()
	targets := targetsOf(t, "sdp-iwarp rtt/64B p50 all <= 1.15 tcp")
	require.NoError(t, r.WriteMarkdown(&out, targets, []string{"rtt.png"}, Compare(r, r)))
	for _, text := range []string{
		"2 × Z80", "CP/M", "no NIC", "too many open files", "![rtt](rtt.png)",
		"| `sdp-iwarp` | rtt/64B | p50 | all | ≤ 1.15 × tcp |  | 2 × tcp | not met |",
		"| rtt/64B | `sdp-iwarp` | all | 2 (1.2 – 2.8) 2 × tcp |",
		"| rtt/64B | 9 | 1 | 2 | 3 % |",
		"0 of 2 rows have changed",
	} {
		require.Contains(t, out.String(), text)
	}
}

func TestTablesShowTheHeadlineAndTargets(t *testing.T) {
	var out bytes.Buffer
	targets := targetsOf(t, "sdp-iwarp rtt/64B p50 all <= 1.15 tcp")
	require.NoError(t, someReport().WriteTables(&out, targets))
	require.Regexp(t, `(?m)^rtt/64B +sdp-iwarp +all +p50 +2 +1.2 +2.8 +µs +2 `, out.String())
	require.Regexp(t, `(?m)^rtt/64B +sdp-iwarp +all +p50 +≤ 1.15 × tcp +2 × tcp +not met`, out.String())
	require.Contains(t, out.String(), "sdp-verbs was not measured: no NIC")
}
