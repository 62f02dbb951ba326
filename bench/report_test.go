package main

import (
	"bytes"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func TestEveryCaseRunsOverEveryContender(t *testing.T) {
	peer, err := harness.StartPeer()
	require.NoError(t, err)
	defer func() { require.NoError(t, peer.Close()) }()
	for _, load := range harness.Cases {
		for _, contender := range harness.Contenders {
			t.Run(load.Name()+"/"+contender.Name, func(t *testing.T) {
				link, err := peer.Dial(t.Context(), contender)
				require.NoError(t, err)
				defer link.Close()
				for _, messages := range []int{1, 20} {
					require.NoError(t, link.Run(load, messages))
				}
			})
		}
	}
}

func TestUnknownContenderIsTheCallersError(t *testing.T) {
	peer, err := harness.StartPeer()
	require.NoError(t, err)
	defer func() { require.NoError(t, peer.Close()) }()
	_, err = peer.Dial(t.Context(), harness.Contender{Name: "pigeons"})
	require.ErrorContains(t, err, "pigeons")
}

func TestReportHasRowsAndTargetsOfWhatWasAskedFor(t *testing.T) {
	var out bytes.Buffer
	plan := plan{rounds: 2, turn: time.Millisecond}
	require.NoError(t, report(&out, io.Discard, plan, regexp.MustCompile("^rtt/")))
	for _, contender := range harness.Contenders {
		require.Regexp(t, `(?m)^rtt/64B +`+regexp.QuoteMeta(contender.Name)+" ", out.String())
	}
	require.Regexp(t, `(?m)^rtt/64B +iwarp +≤ 1.15 .* met`, out.String())
	require.NotContains(t, out.String(), "stream")
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	load := harness.Case{Pattern: harness.RoundTrip, Size: 64, Metric: harness.Latency}
	// Each round slows both down alike; the ratio is 2 in every one of them.
	took := func(scale time.Duration) (s []sample) {
		for _, d := range []time.Duration{1, 10, 3} {
			s = append(s, sample{messages: 10, took: d * scale * time.Millisecond})
		}
		return s
	}
	rows := summarize(load, []series{{harness.Baseline, took(1)}, {"other", took(2)}})
	require.Equal(t, 1.0, rows[0].ratio)
	require.Equal(t, 2.0, rows[1].ratio)
	require.InDelta(t, 600, rows[1].metric.median, 1e-9)
	require.InDelta(t, 280, rows[1].metric.p10, 1e-9)
	require.InDelta(t, 1720, rows[1].metric.p90, 1e-9)
}

func TestTargetsNameCasesAndContendersThatExist(t *testing.T) {
	cases, contenders := map[string]bool{}, map[string]bool{}
	for _, c := range harness.Cases {
		cases[c.Name()] = true
	}
	for _, c := range harness.Contenders {
		contenders[c.Name] = true
	}
	for _, target := range targets {
		require.Contains(t, cases, target.load)
		require.Contains(t, contenders, target.contender)
	}
}
