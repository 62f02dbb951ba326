package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
	"github.com/gosdp/gosdp/bench/internal/report"
)

// TestMain lets the test binary run as a measured process, like the program itself.
func TestMain(m *testing.M) {
	if harness.ChildMain() {
		return
	}
	// By default the race detector sleeps for a second when a process exits.
	os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// options1 selects one small case and the given contenders.
func options1(dir string, contenders ...string) options {
	return options{
		quick:      true,
		run:        regexp.MustCompile("^rtt/64B$"),
		contenders: contenders,
		dir:        dir,
	}
}

func TestRunComparesWithAnEarlierReport(t *testing.T) {
	shorten(t)
	dir := t.TempDir()
	o := options1(filepath.Join(dir, "first"), "tcp", "tcp", "sdp-iwarp")
	o.json = true
	var printed bytes.Buffer
	require.NoError(t, o.main(&printed, io.Discard))
	r, err := report.Read(&printed)
	require.NoError(t, err)
	for _, contender := range []string{"tcp", "tcp#2", "sdp-iwarp"} {
		row, ok := r.Find(harness.Case{Kind: harness.RTT, Size: 64, Conns: 1}, contender, report.All, harness.P50)
		require.True(t, ok, contender)
		require.NotNil(t, row.Ratio)
		require.Positive(t, row.Median)
	}
	require.Len(t, r.Kept, 1)
	require.Empty(t, r.Failed)

	left, err := readReport(filepath.Join(o.dir, jsonFile))
	require.NoError(t, err)
	require.Equal(t, r.Rows, left.Rows)
	markdown, err := os.ReadFile(filepath.Join(o.dir, markdownFile))
	require.NoError(t, err)
	require.Contains(t, string(markdown), "overview.png")
	require.FileExists(t, filepath.Join(o.dir, "overview.png"))

	again := options1(filepath.Join(dir, "second"), "tcp", "sdp-iwarp")
	again.baseline = filepath.Join(o.dir, jsonFile)
	again.profiles = filepath.Join(dir, "profiles")
	printed.Reset()
	require.NoError(t, again.main(&printed, io.Discard))
	markdown, err = os.ReadFile(filepath.Join(again.dir, markdownFile))
	require.NoError(t, err)
	require.Regexp(t, "`sdp-iwarp` \\| rtt/64B \\| p50 \\| all \\| ≤ 1.15 × tcp .* met", string(markdown))
	require.Regexp(t, `\d+ of \d+ rows have changed`, printed.String())
	profile, err := os.Stat(filepath.Join(again.profiles, "sdp-iwarp-rtt-64B-server.prof"))
	require.NoError(t, err)
	require.Positive(t, profile.Size())
}

// TestFailedContendersAreAnError: the report has what the others did.
func TestFailedContendersAreAnError(t *testing.T) {
	shorten(t)
	present := harness.Contenders
	defer func() { harness.Contenders = present }()
	harness.Contenders = append(slices.Clone(present), harness.Contender{Name: "pigeons"}) // unknown to the processes
	for _, asJSON := range []bool{false, true} {
		for _, contenders := range [][]string{{"tcp", "pigeons"}, {"pigeons"}} {
			o := options1(t.TempDir(), contenders...)
			o.json = asJSON
			var printed bytes.Buffer
			require.ErrorContains(t, o.main(&printed, io.Discard), "1 measurements failed, the first that of pigeons in rtt/64B")
			require.Contains(t, printed.String(), "pigeons")
			require.FileExists(t, filepath.Join(o.dir, jsonFile))
			require.FileExists(t, filepath.Join(o.dir, markdownFile))
		}
	}
	require.EqualError(t, complete(&report.Report{Rows: []report.Row{{Case: report.LineCase}}}), "nothing was measured")
}

// shorten makes turns as short as possible.
func shorten(t *testing.T) {
	full, quick := fullTime, quickTime
	fullTime, quickTime = 0, 0
	t.Cleanup(func() { fullTime, quickTime = full, quick })
}

func TestCheckFailsIfATargetIsMissed(t *testing.T) {
	shorten(t)
	defer func(text string) { targetsFile = text }(targetsFile)
	for text, met := range map[string]bool{"<= 1000 tcp": true, ">= 1000 tcp": false} {
		targetsFile = "sdp-iwarp rtt/64B p50 all " + text
		o := options1(t.TempDir())
		o.run, o.check = regexp.MustCompile(""), true
		var printed bytes.Buffer
		err := o.main(&printed, io.Discard)
		require.NotContains(t, printed.String(), "stream", "only what has a target")
		if met {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "1 of 1 targets are not met")
		}
	}
}

func TestInvalidOptionsAreErrors(t *testing.T) {
	for _, c := range []struct {
		change func(o *options)
		err    string
	}{
		{func(o *options) { o.contenders = []string{"pigeons"} }, "pigeons"},
		{func(o *options) { o.run = regexp.MustCompile("^nothing$") }, "nothing"},
		{func(o *options) { o.baseline = "no such file" }, "no such file"},
	} {
		o := options1(t.TempDir(), "tcp")
		c.change(&o)
		require.ErrorContains(t, o.main(io.Discard, io.Discard), c.err)
	}
}

func TestAbsentContendersAreNamed(t *testing.T) {
	present := harness.Contenders
	defer func() { harness.Contenders = present }()
	harness.Contenders = []harness.Contender{
		{Name: "here"},
		{Name: "away", Probe: func() error { return os.ErrPermission }},
	}
	participants, absent, err := choose(nil)
	require.NoError(t, err)
	require.Len(t, participants, 1)
	require.Equal(t, []report.Absence{{Contender: "away", Why: os.ErrPermission.Error()}}, absent)
	_, _, err = choose([]string{"away"})
	require.ErrorIs(t, err, os.ErrPermission)
}

func TestContenderMayBeRepeated(t *testing.T) {
	participants, _, err := choose([]string{"tcp", "unix", "tcp", "tcp"})
	require.NoError(t, err)
	var names []string
	for _, e := range participants {
		names = append(names, e.name)
	}
	require.Equal(t, []string{"tcp", "unix", "tcp#2", "tcp#3"}, names)
}

func TestDisturbedRoundsAreRepeatedWithinLimits(t *testing.T) {
	quiet, noisy := report.Round{}, report.Round{Foreign: 1}
	rounds := func(quietOnes, noisyOnes int) (all []report.Round) {
		for range quietOnes {
			all = append(all, quiet)
		}
		for range noisyOnes {
			all = append(all, noisy)
		}
		return all
	}
	p := plan{rounds: 9, patience: time.Minute}
	hurried := p
	hurried.limit = 2 * time.Minute
	for _, c := range []struct {
		name         string
		plan         plan
		quiet, noisy int
		spent        time.Duration
		more         bool
	}{
		{"too few", p, 8, 0, 0, true},
		{"enough", p, 9, 0, 0, false},
		{"too few quiet ones", p, 8, 1, 0, true},
		{"twice as many as wanted", p, 8, 10, 0, false},
		{"too few quiet ones, and no patience", p, 8, 1, time.Hour, false},
		{"too few, and no patience", p, 5, 1, time.Hour, true},
		{"too few, and no patience, but time", hurried, 2, 1, 90 * time.Second, true},
		{"too few, and no time", hurried, 2, 1, time.Hour, false},
		{"nearly none, and no time", hurried, 1, 1, time.Hour, true},
	} {
		require.Equal(t, c.more, c.plan.needsRound(rounds(c.quiet, c.noisy), c.spent), c.name)
	}
}

func TestTimeIsDividedBetweenTurns(t *testing.T) {
	defer func(time time.Duration) { fullTime = time }(fullTime)
	fullTime = fullPasses * (fullRounds + 1) * 100 * time.Second
	require.Equal(t, 100*time.Millisecond, newPlan(false, 100, 10).turn)
	require.Equal(t, 20*time.Millisecond, newPlan(false, 500, 10).turn)
	require.Equal(t, shortestTurn, newPlan(false, 5000, 10).turn)
	require.Equal(t, longestTurn, newPlan(false, 1, 1).turn)
	for _, quick := range []bool{false, true} {
		p := newPlan(quick, 1, 1)
		require.GreaterOrEqual(t, p.passes*p.rounds, 9)
	}
}

func TestTargetsFileIsValid(t *testing.T) {
	targets, err := report.ReadTargets(strings.NewReader(targetsFile))
	require.NoError(t, err)
	require.NotEmpty(t, targets)
}

func TestFailedContenderIsDropped(t *testing.T) {
	shorten(t)
	tcp, err := harness.Find("tcp")
	require.NoError(t, err)
	p := newPlan(true, 1, 3)
	r := run{
		load: harness.Case{Kind: harness.RTT, Size: 64, Conns: 1},
		participants: []participant{
			{"pigeons", harness.Contender{Name: "pigeons"}},
			{"tcp", tcp},
		},
		rounds: []report.Round{{Samples: []report.Sample{
			{Metrics: []harness.Metric{{Name: harness.P50, Value: 1e9}}}, // from an earlier pass, in which pigeons worked
			{Metrics: []harness.Metric{{Name: harness.P50, Value: 25}}},
		}}},
	}
	require.NoError(t, p.pass(&r, func(int) {}))
	require.Len(t, r.failed, 1)
	require.Equal(t, "pigeons", r.failed[0].Contender)
	rows, kept := r.rows(100)
	require.Greater(t, kept.Rounds, 1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		require.Equal(t, "tcp", row.Contender)
		require.Less(t, row.Hi, 1e9)
	}
}
