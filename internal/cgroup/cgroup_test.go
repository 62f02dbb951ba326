package cgroup

import (
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files replaces the file system. Names lack the leading slash.
type files map[string]string

func (f files) read(name string) (string, error) {
	text, ok := f[name[1:]]
	if !ok {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(text), nil
}

func TestMemory(t *testing.T) {
	for _, v := range []struct {
		name  string
		files files
		want  int64
	}{
		{"none", nil, 0},
		{"v2", map[string]string{
			"proc/self/cgroup":                                "0::/system.slice/a.service\n",
			"sys/fs/cgroup/system.slice/memory.max":           "max\n",
			"sys/fs/cgroup/system.slice/memory.high":          "max\n",
			"sys/fs/cgroup/system.slice/a.service/memory.max": "1073741824\n",
		}, 1 << 30},
		{"v2, the parent has a lower limit", map[string]string{
			"proc/self/cgroup":                                "0::/system.slice/a.service\n",
			"sys/fs/cgroup/system.slice/memory.max":           "536870912\n",
			"sys/fs/cgroup/system.slice/a.service/memory.max": "1073741824\n",
		}, 512 << 20},
		{"v2, reclaim begins earlier", map[string]string{
			"proc/self/cgroup":           "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.high": "268435456\n",
		}, 256 << 20},
		{"v2, without a limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n",
		}, 0},
		{"v2, in a container", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n",
		}, 256 << 20},
		{"v1", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/docker/b\n0::/c\n",
			"sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": "268435456\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
			"sys/fs/cgroup/a/memory.max":                          "1\n", // of an unrelated group
		}, 256 << 20},
		{"v1, in a container that sees the host's path", map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/b\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n",
		}, 128 << 20},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "\nmemory\n0::/../../a\n4:memory\n", "sys/fs/cgroup/a/memory.max": "-5\n",
		}, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			assert.Equal(t, v.want, limits(v.files.read).Memory)
		})
	}
}

func TestProcessors(t *testing.T) {
	for name, v := range map[string]struct {
		files files
		want  float64
	}{
		"no cgroups":    {nil, math.Inf(1)},
		"2, none":       {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, math.Inf(1)},
		"2":             {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "30000 100000\n"}, 0.3},
		"2, of another": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/c/cpu.max": "30000 100000\n"}, math.Inf(1)},
		"2, above": {map[string]string{
			"proc/self/cgroup":            "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max":   "200000 100000\n",
			"sys/fs/cgroup/a/cpu.max":     "150000 100000\n",
			"sys/fs/cgroup/other/cpu.max": "1000 100000\n",
		}, 1.5},
		"2, the host's path": {map[string]string{"proc/self/cgroup": "0::/kubepods/x\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5},
		"2, not a number":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "a b\n"}, math.Inf(1)},
		"2, zero":            {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100 0\n"}, math.Inf(1)},
		"1, none": {map[string]string{
			"proc/self/cgroup": "4:memory:/m\n2:cpu,cpuacct:/a\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
		}, math.Inf(1)},
		"1": {map[string]string{
			"proc/self/cgroup": "4:memory:/m\n2:cpu,cpuacct:/a\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":  "20000\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
		}, 0.2},
		"both": {map[string]string{
			"proc/self/cgroup":                     "1:cpu:/a\n0::/b\n",
			"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/unified/b/cpu.max": "70000 100000\n",
		}, 0.7},
	} {
		t.Run(name, func(t *testing.T) {
			assert.InDelta(t, v.want, limits(v.files.read).Processors, 1e-9)
		})
	}
	assert.Positive(t, Own().Processors, "on this machine")
}

// TestSoon: there are no limits at first, and soon the process's own.
func TestSoon(t *testing.T) {
	defer func(was func() Limits) { Own = was }(Own)
	want := Limits{Memory: 1 << 20, Processors: 0.5}
	Own = func() Limits { return want }
	own.Store(nil)
	asked.Store(0)
	for range 2 {
		l, known := Soon()
		assert.Equal(t, Limits{Processors: math.Inf(1)}, l)
		assert.False(t, known)
	}
	asked.Add(-int64(soon))
	l, known := Soon()
	assert.Equal(t, want, l)
	assert.True(t, known)
}
