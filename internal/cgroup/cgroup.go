// Package cgroup tells what the control groups of this process allow it, of version 1 and
// of version 2. On systems other than Linux, and without control groups, that is everything.
package cgroup

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// Limits are what the processes of a group may use together.
type Limits struct {
	Memory     int64   // bytes; 0: no limit
	Processors float64 // how many processors' time; +Inf: no limit
}

// Own returns those of this process, as they were when it was first called. Safe for
// concurrent use.
var Own = sync.OnceValue(func() Limits { return limits(sysfile.Read) })

// limits finds them in files that read returns, without white space around the text. The
// smallest limit counts, of a group and of those that it is in.
func limits(read func(name string) (string, error)) Limits {
	of := Limits{Memory: math.MaxInt64, Processors: math.Inf(1)}
	groups, _ := read("/proc/self/cgroup")
	for line := range strings.Lines(groups) {
		// hierarchy:controllers:path; version 2 has hierarchy 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		controllers := strings.Split(fields[1], ",")
		if fields[1] == "" {
			for _, mount := range []string{"", "unified"} {
				upwards(mount, fields[2], func(dir string) {
					of.memory(read(dir + "/memory.max"))
					of.memory(read(dir + "/memory.high"))
					max, err := read(dir + "/cpu.max")
					if words := strings.Fields(max); len(words) == 2 { // quota and period in µs
						of.processors(words[0], words[1], err)
					}
				})
			}
			continue
		}
		if slices.Contains(controllers, "memory") {
			upwards("memory", fields[2], func(dir string) { of.memory(read(dir + "/memory.limit_in_bytes")) })
		}
		if slices.Contains(controllers, "cpu") {
			for _, mount := range slices.Compact([]string{fields[1], "cpu"}) {
				upwards(mount, fields[2], func(dir string) {
					if quota, err := read(dir + "/cpu.cfs_quota_us"); err == nil && quota != "-1" {
						period, err := read(dir + "/cpu.cfs_period_us")
						of.processors(quota, period, err)
					}
				})
			}
		}
	}
	if of.Memory == math.MaxInt64 {
		of.Memory = 0
	}
	return of
}

// upwards calls look with the directory of a group, and with those of all groups that it is
// in. In a container the group's path may be the host's, of which nothing is mounted but the
// group itself, at the top.
func upwards(mount, group string, look func(dir string)) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		look(path.Join("/sys/fs/cgroup", mount, at))
		if at == "/" {
			return
		}
	}
}

// memory takes in a limit. "max" is no number; version 1 has a huge one where there is none.
func (l *Limits) memory(bytes string, err error) {
	if err != nil {
		return
	}
	if n, err := strconv.ParseInt(bytes, 10, 64); err == nil && n > 0 {
		l.Memory = min(l.Memory, n)
	}
}

// processors takes in a quota and its period.
func (l *Limits) processors(quota, period string, err error) {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err == nil && err1 == nil && err2 == nil && q > 0 && p > 0 {
		l.Processors = min(l.Processors, q/p)
	}
}
