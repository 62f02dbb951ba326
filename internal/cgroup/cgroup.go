// Package cgroup returns the limits that control groups, version 1 or 2, set for this
// process. There are none on systems other than Linux.
package cgroup

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/sysfile"
)

// Limits are limits that the processes of a group share.
type Limits struct {
	Memory     int64   // bytes; 0 means no limit
	Processors float64 // processor time per time; +Inf means no limit
}

// Own returns the limits of this process. They are read at the first call, which takes 0.1 ms. It
// is safe for concurrent use.
var Own = sync.OnceValue(func() Limits {
	l := limits(sysfile.Read)
	own.Store(&l)
	return l
})

// own are the limits that Own has read; nil: none yet.
var own atomic.Pointer[Limits]

// Soon is Own for callers that can do without limits at first. There are none until soon after the
// first call, when they are read: a program that ends before that does not spend the time. It is
// safe for concurrent use.
func Soon() (l Limits, known bool) {
	if l := own.Load(); l != nil {
		return *l, true
	}
	now := int64(time.Since(start))
	if asked.CompareAndSwap(0, now) || now-asked.Load() < int64(soon) {
		return Limits{Processors: math.Inf(1)}, false
	}
	return Own(), true
}

const soon = 100 * time.Millisecond

var (
	start = time.Now()
	asked atomic.Int64 // when Soon was called first, in ns since start; 0: it was not
)

// limits computes the limits from files. read returns a file's text without surrounding
// white space. The smallest limit of the group and its ancestors counts.
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
				forEachAncestor(mount, fields[2], func(dir string) {
					of.limitMemory(read(dir + "/memory.max"))
					of.limitMemory(read(dir + "/memory.high"))
					max, err := read(dir + "/cpu.max")
					if words := strings.Fields(max); len(words) == 2 { // quota and period in µs
						of.limitProcessors(words[0], words[1], err)
					}
				})
			}
			continue
		}
		if slices.Contains(controllers, "memory") {
			forEachAncestor("memory", fields[2], func(dir string) { of.limitMemory(read(dir + "/memory.limit_in_bytes")) })
		}
		if slices.Contains(controllers, "cpu") {
			for _, mount := range slices.Compact([]string{fields[1], "cpu"}) {
				forEachAncestor(mount, fields[2], func(dir string) {
					if quota, err := read(dir + "/cpu.cfs_quota_us"); err == nil && quota != "-1" {
						period, err := read(dir + "/cpu.cfs_period_us")
						of.limitProcessors(quota, period, err)
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

// forEachAncestor calls look with the directory of a group and with those of its
// ancestors. In a container, the group's path may be that on the host, while only the
// group itself is mounted, at the top.
func forEachAncestor(mount, group string, look func(dir string)) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		look(path.Join("/sys/fs/cgroup", mount, at))
		if at == "/" {
			return
		}
	}
}

// limitMemory applies a limit. It ignores "max", which is not a number. Version 1 has a
// huge number if there is no limit.
func (l *Limits) limitMemory(bytes string, err error) {
	if err != nil {
		return
	}
	if n, err := strconv.ParseInt(bytes, 10, 64); err == nil && n > 0 {
		l.Memory = min(l.Memory, n)
	}
}

// limitProcessors applies a quota and its period.
func (l *Limits) limitProcessors(quota, period string, err error) {
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err == nil && err1 == nil && err2 == nil && q > 0 && p > 0 {
		l.Processors = min(l.Processors, float64(q)/float64(p))
	}
}
