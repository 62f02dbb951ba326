//go:build !race

package cost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seconds is the length of a turn.
const seconds = 0.5

// compare gives each device n turns, alternately. Each turn over shm is compared with the one over TCP just
// before it, because a machine's speed changes within seconds: the median must be within the limit that
// follows from TCP's figure. If it is not, and the limit is so narrow that TCP would not keep it either, the
// machine was too unsteady, and compare measures again, twice at most.
func compare(t *testing.T, n int, limit func(tcp float64) float64, turn func(device string) float64) {
	t.Helper()
	for again := 2; ; again-- {
		each := alternate(n, turn)
		var excess []float64
		for i, tcp := range each["tcp"] {
			excess = append(excess, each["shm"][i]-limit(tcp))
		}
		low, high := quantile(each["tcp"], 0.25), quantile(each["tcp"], 0.75)
		over := median(excess)
		t.Logf("TCP %.3f (%.3f to %.3f), shm %.3f, excess over the limit %.3f",
			median(each["tcp"]), low, high, median(each["shm"]), over)
		if over <= 0 || again == 0 || high <= limit(low) {
			assert.LessOrEqual(t, over, 0.0, "excess over the limit")
			return
		}
	}
}

// alternate gives each device n turns, alternately, and returns the figures.
func alternate(n int, turn func(device string) float64) map[string][]float64 {
	all := make(map[string][]float64)
	for range n {
		for _, device := range []string{"tcp", "shm"} {
			all[device] = append(all[device], turn(device))
		}
	}
	return all
}

func median(figures []float64) float64 { return quantile(figures, 0.5) }

func quantile(figures []float64, share float64) float64 {
	figures = slices.Sorted(slices.Values(figures))
	return figures[int(float64(len(figures))*share)]
}

// TestNeighbour: in a process with one P, a shared-memory connection with a request every
// 200 µs must not delay other connections more than a TCP connection does. If it spun from
// one request to the next, the runtime would look at the network only when sysmon does,
// every 10 ms. The figures are the 99th percentiles of the other connection's round trips, in ms.
func TestNeighbour(t *testing.T) {
	limit := func(tcp float64) float64 { return max(1.5*tcp, 2) }
	compare(t, 15, limit, func(device string) float64 {
		server := start(t, []string{"GOMAXPROCS=1"}, "serve", device)
		at := server.words(2)
		duration := fmt.Sprint(seconds)
		load := start(t, nil, "ask", device, at[1], "200", duration)
		other := start(t, nil, "ask", "tcp", at[0], "1000", duration)
		a := other.result()
		load.result()
		server.end()
		return a.p99.Seconds() * 1e3
	})
}

// TestProcessorTime: periodic requests must not use much more processor time than over TCP. Each turn over
// shm is compared with the one over TCP just before it, because a machine's speed changes within seconds.
func TestProcessorTime(t *testing.T) {
	for _, v := range []struct{ pairs, every, turns int }{
		{1, 100, 5}, {1, 200, 5}, {4, 250, 5},
		{1, 400, 15}, {1, 1000, 15}, // few requests in a turn: the medians of 5 differ by 20 % from run to run
	} {
		t.Run(fmt.Sprintf("%d pairs, every %d µs", v.pairs, v.every), func(t *testing.T) {
			each := alternate(v.turns, func(device string) float64 {
				var servers, clients []*child
				for range v.pairs {
					server := start(t, nil, "serve", device)
					servers = append(servers, server)
					clients = append(clients, start(t, nil, "ask", device, server.words(2)[1], strconv.Itoa(v.every), fmt.Sprint(seconds)))
				}
				var sum time.Duration
				requests := 0
				for i, c := range clients {
					a := c.result()
					sum += a.used + servers[i].end()
					requests += a.requests
				}
				return float64(sum.Microseconds()) / float64(requests)
			})
			var ratios []float64
			for i, tcp := range each["tcp"] {
				ratios = append(ratios, each["shm"][i]/tcp)
			}
			t.Logf("µs per request: TCP %.1f, shm %.1f, ratio %.2f", median(each["tcp"]), median(each["shm"]), median(ratios))
			assert.LessOrEqual(t, median(ratios), 1.2, "of TCP's processor time")
		})
	}
}

// TestThrottled: a server has a quota of 30 % of a processor, and a request every 150 µs
// uses most of it. The kernel must not stop the server more often than over TCP. The figures are the
// periods in which it was stopped, per 10,000 requests.
func TestThrottled(t *testing.T) {
	limit := func(tcp float64) float64 { return tcp + 2 }
	compare(t, 11, limit, func(device string) float64 {
		group := newGroup(t)
		server := start(t, nil, "serve", device)
		at := server.words(2)
		group.add(server.cmd.Process.Pid)
		// The server reads its quota when it first waits.
		before := group.throttled()
		client := start(t, nil, "ask", device, at[1], "150", fmt.Sprint(2*seconds))
		a := client.result()
		stopped := group.throttled() - before
		server.end()
		server.cmd.Wait()
		return float64(stopped) / float64(a.requests) * 1e4
	})
}

// group is a control group with a quota of 30 % of a processor.
type group struct {
	t   *testing.T
	dir string
}

// newGroup makes a control group below the root of version 1's cpu controller, or of
// version 2's hierarchy.
func newGroup(t *testing.T) *group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("missing: permission to make a control group (root)")
	}
	set := func(dir, file, text string) error { // the file exists if dir is a control group
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	}
	var why []string
	for root, files := range map[string][][2]string{
		"/sys/fs/cgroup/cpu":         {{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "30000"}},
		"/sys/fs/cgroup/cpu,cpuacct": {{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "30000"}},
		"/sys/fs/cgroup":             {{"cpu.max", "30000 100000"}},
	} {
		dir, err := os.MkdirTemp(root, "sdp-cost-")
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		for _, f := range files {
			if err = set(dir, f[0], f[1]); err != nil {
				break
			}
		}
		if err == nil {
			t.Cleanup(func() { os.Remove(dir) })
			return &group{t, dir}
		}
		os.Remove(dir)
		why = append(why, err.Error())
	}
	t.Skipf("missing: a control group with a processor quota: %s", strings.Join(why, "; "))
	return nil
}

func (g *group) add(pid int) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
}

// throttled returns in how many periods the kernel stopped the group.
func (g *group) throttled() int {
	g.t.Helper()
	stat, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	require.NoError(g.t, err)
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			require.NoError(g.t, err)
			return n
		}
	}
	g.t.Fatalf("no nr_throttled in %q", stat)
	return 0
}
