package budget

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
)

const (
	part    = 16       // of the memory that there is, as of a kernel's for TCP
	least   = 16 << 20 // bytes: two connections in full swing
	most    = 4 << 30
	unknown = 1 << 30 // the memory of a machine that does not say
)

// Default returns the limit that follows from the machine: a sixteenth of its memory,
// or of what the control group may use if that is less, between 16 MB and 4 GB. It is
// found out once.
var Default = sync.OnceValue(func() int64 {
	return share(machineMemory(), groupMemory(os.DirFS("/")))
})

// share returns the budget for that much memory of the machine and of the group; 0:
// not known, or without a limit.
func share(machine, group int64) int64 {
	if machine <= 0 {
		machine = unknown
	}
	if group > 0 {
		machine = min(machine, group)
	}
	return min(max(machine/part, least), most)
}

// groupMemory returns what the control groups of this process allow it, in bytes; 0: no
// limit. root is the file system, with proc and sys in their usual places.
func groupMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		// hierarchy:controllers:path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			limit = min(limit, lowest(root, "sys/fs/cgroup", fields[2], "memory.max", "memory.high"))
		case hasField(fields[1], "memory"):
			limit = min(limit, lowest(root, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"))
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

func hasField(list, name string) bool {
	for field := range strings.SplitSeq(list, ",") {
		if field == name {
			return true
		}
	}
	return false
}

// lowest returns the smallest limit of a group and of those that it is in. In a
// container the group's path may be the host's, of which nothing is mounted but the
// group itself, at the top.
func lowest(root fs.FS, mount, group string, names ...string) int64 {
	limit := int64(math.MaxInt64)
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		for _, name := range names {
			text, err := fs.ReadFile(root, path.Join(mount, at, name))
			if err != nil {
				continue
			}
			// "max" is no number; without a limit v1 has a huge one.
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
		if at == "/" {
			return limit
		}
	}
}

// Parse reads a number of bytes, such as 512M: K, M and G are powers of 1024.
func Parse(text string) (bytes int64, ok bool) {
	shift := 0
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
		if shift > 0 {
			text = text[:n-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return 0, false
	}
	return int64(n) << shift, true
}
