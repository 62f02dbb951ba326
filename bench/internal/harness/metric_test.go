package harness

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func metricsOf(c Case, t Turn) map[string]float64 {
	values := map[string]float64{}
	for _, m := range c.Metrics(t) {
		values[m.Name] = m.Value
	}
	return values
}

func TestMetricsOfAStream(t *testing.T) {
	turn := Turn{Messages: 1000, Result: Result{Took: time.Second / 2}, CPU: time.Second, Allocs: 500}
	require.Equal(t, map[string]float64{
		BytesPerS:  2e6,
		MsgsPerS:   2000,
		CPUPerGB:   1000,
		CPUPerMReq: 1000,
		Allocs:     0.5,
	}, metricsOf(Case{Kind: Stream, Size: 1000, Conns: 1}, turn))
	duplex := metricsOf(Case{Kind: Duplex, Size: 1000, Conns: 1}, turn)
	require.Equal(t, 4e6, duplex[BytesPerS], "both directions count")
	require.Equal(t, 500.0, duplex[CPUPerGB])
}

func TestMetricsOfRoundTrips(t *testing.T) {
	turn := Turn{Messages: 100, Result: Result{Took: time.Second, Latency: Latency{P50: 7, P99: 9}}, CPU: time.Second}
	require.Equal(t, map[string]float64{
		P50: 7, P99: 9, ReqPerS: 100, CPUPerMReq: 10_000, Allocs: 0,
	}, metricsOf(Case{Kind: RTT, Size: 64, Conns: 1}, turn))
	require.NotContains(t, metricsOf(Case{Kind: RTTIdle, Size: 64, Conns: 1}, turn), ReqPerS)
}

// TestReadsThatTimeOut: a turn of conns-read has one Read on each connection, and only its processor time counts.
func TestReadsThatTimeOut(t *testing.T) {
	c := Case{Kind: ConnsRead, Conns: 2000}
	n, ok := c.idleTurn(time.Second)
	require.True(t, ok)
	require.Equal(t, readTimeout, time.Duration(n)*time.Millisecond)
	turn := Turn{Messages: n, Result: Result{Took: time.Second}, CPU: time.Second / 10}
	require.Equal(t, map[string]float64{CPUPerS: 0.1}, metricsOf(c, turn))

	near, far := net.Pipe()
	go far.Write([]byte("x"))
	l := &link{conn: near}
	require.ErrorContains(t, l.readInVain(time.Minute), "returned 1")
}

func TestMemoryIsOfTheLargerSide(t *testing.T) {
	turn := Turn{
		Messages: 1000,
		Result:   Result{Took: time.Second},
		CPU:      time.Millisecond,
		Empty:    [2]Memory{{RSS: 1 << 20, Stacks: 1 << 16, FDs: 7}, {RSS: 1 << 20, Stacks: 1 << 16, FDs: 7}},
		Full: [2]Memory{
			{RSS: 1<<20 + 100*6000, Stacks: 1<<16 + 100*2000, Shared: 100 * 1000, FDs: 107},
			{RSS: 1<<20 + 100*4000, Stacks: 1<<16 + 100*3000, FDs: 207},
		},
	}
	require.Equal(t, map[string]float64{
		Goroutines: 0, CPUPerS: 0.001, FDs: 2, "fds_client": 1, "fds_server": 2,
		RSS: 6000, "rss_client": 6000, "rss_server": 4000, RSSShared: 1000, RSSPrivate: 3000, Stacks: 3000,
	}, metricsOf(Case{Kind: Conns, Size: 0, Conns: 100}, turn))
	require.NotContains(t, metricsOf(Case{Kind: Conns, Size: 0, Conns: 1}, turn), RSS, "one connection says nothing about memory")
	busy := metricsOf(Case{Kind: ConnsBusy, Size: 64, Conns: 100}, turn)
	for name, value := range map[string]float64{CPUPerS: 0.001, FDs: 2, RSS: 6000, ReqPerS: 1000, CPUPerMReq: 1} {
		require.Equal(t, value, busy[name], name)
	}
}

func TestQuantilesNeedEnoughOperations(t *testing.T) {
	var collected times
	record := func(n int) Latency {
		collected.reset()
		first, second := collected.shard(0), collected.shard(1)
		for i := 1; i <= n; i++ {
			timer := first
			if i > n/2 {
				timer = second
			}
			timer.histogram.RecordValue(int64(i) * 1000)
		}
		return collected.latency()
	}
	l := record(1000)
	require.InEpsilon(t, 500, l.P50, 0.01)
	require.InEpsilon(t, 990, l.P99, 0.01)
	require.InEpsilon(t, 999, l.P999, 0.01)
	l = record(499)
	require.Positive(t, l.P99)
	require.Zero(t, l.P999)
	l = record(49)
	require.Positive(t, l.P50)
	require.Zero(t, l.P99)
	require.Zero(t, new(times).latency())
}

func TestTimerMeasuresTimeBetweenLaps(t *testing.T) {
	var collected times
	timer := collected.shard(0)
	timer.start()
	time.Sleep(20 * time.Millisecond)
	const quick = 10 // one of them at least is not interrupted
	for range 1 + quick {
		timer.lap()
	}
	require.Greater(t, float64(timer.histogram.Max()), 20e6)
	require.Less(t, float64(timer.histogram.Min()), 20e6)
	require.EqualValues(t, 1+quick, timer.histogram.TotalCount())
}
