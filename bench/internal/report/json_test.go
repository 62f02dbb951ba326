package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/machine"
)

// rowOf returns a row of the contender's rounds. The baseline is 1 in every round.
func rowOf(contender string, values ...float64) Row {
	r := Row{
		Case: harness.RTT, Contender: contender, Size: 64, Conns: 1,
		Distance: All, Metric: harness.P50, Unit: "µs", Values: values, Ratios: values,
	}
	r.finish()
	return r
}

func someReport() *Report {
	return &Report{
		Machine: machine.Description{Processor: "Z80", Processors: 2, Kernel: "CP/M", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		Absent:  []Absence{{"sdp-verbs", "no NIC"}},
		Failed:  []Failure{{"quic", "conns/9000", "too many open files"}},
		Kept:    []CaseKept{{"rtt/64B", Kept{Rounds: 9, Disturbed: 1, Dropped: 2, Foreign: 0.03}}},
		Rows:    []Row{rowOf("tcp", 1, 1, 1), rowOf("sdp-iwarp", 2, 1, 3)},
	}
}

func TestReportSurvivesJSON(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, someReport().WriteJSON(&text))
	read, err := Read(&text)
	require.NoError(t, err)
	require.Equal(t, someReport(), read)
}

func TestRowHasDocumentedFields(t *testing.T) {
	text, err := json.Marshal(rowOf("tcp", 1, 2, 3))
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range []string{"case", "contender", "size", "conns", "distance", "metric", "unit", "median", "lo", "hi", "ratio_tcp"} {
		require.Contains(t, fields, name)
	}
	require.Equal(t, 2.0, fields["median"])
}

func TestReadNamesInvalidLine(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, someReport().WriteJSON(&text))
	lines := text.String()
	_, err := Read(strings.NewReader(lines + `{"weather":"fine"}` + "\n"))
	require.ErrorContains(t, err, "line 7: ")
	_, err = Read(strings.NewReader(lines + "case contender\n"))
	require.ErrorContains(t, err, "line 7: ")
	_, err = Read(strings.NewReader(""))
	require.ErrorContains(t, err, "no rows")
}
