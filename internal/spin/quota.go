//go:build linux

package spin

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// quota returns how many processors' time the cgroups of this process may use, +Inf if as
// much as there is. It is read once.
var quota = sync.OnceValue(func() float64 { return readQuota("/") })

// readQuota looks at the cgroups of this process in the file system below root, up to the
// topmost that can be seen. The smallest quota counts.
func readQuota(root string) float64 {
	least := math.Inf(1)
	f, err := os.Open(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// hierarchy:controllers:path; version 2 has hierarchy 0 and no controllers.
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var mounts []string
		read := quota1
		switch {
		case parts[1] == "":
			mounts, read = []string{"", "unified"}, quota2
		case slices.Contains(strings.Split(parts[1], ","), "cpu"):
			mounts = []string{parts[1], "cpu"}
		}
		for _, mount := range mounts {
			for _, dir := range upwards(filepath.Join(root, "sys/fs/cgroup", mount), parts[2]) {
				least = min(least, read(dir))
			}
		}
	}
	return least
}

// upwards returns the directory at path below mount, and all above it down to mount. In a
// container path may be the host's; then only mount is there.
func upwards(mount, path string) (dirs []string) {
	for p := filepath.Clean("/" + path); ; p = filepath.Dir(p) {
		dirs = append(dirs, filepath.Join(mount, p))
		if p == "/" {
			return dirs
		}
	}
}

// quota2 reads cpu.max, quota and period in µs: "max 100000", or "30000 100000".
func quota2(dir string) float64 {
	words := strings.Fields(text(dir, "cpu.max"))
	if len(words) != 2 {
		return math.Inf(1)
	}
	return ratio(words[0], words[1])
}

// quota1 reads cpu.cfs_quota_us, which is -1 where there is none, and the period.
func quota1(dir string) float64 {
	return ratio(text(dir, "cpu.cfs_quota_us"), text(dir, "cpu.cfs_period_us"))
}

func ratio(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || q <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return q / p
}

func text(dir, file string) string {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(b))
}
