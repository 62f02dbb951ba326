package traffic

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Held is what a process holds that connections may leak. Values that come from /proc are 0
// on systems without it.
type Held struct {
	Goroutines  int
	Descriptors int
	Areas       int // mapped areas of shared memory
	Memory      int // resident anonymous bytes
}

// HeldNow returns what this process holds, after collecting garbage.
func HeldNow() Held {
	for range 3 { // sync.Pools are empty after two collections
		runtime.GC()
	}
	debug.FreeOSMemory()
	h := Held{Goroutines: runtime.NumGoroutine()}
	files, _ := os.ReadDir("/proc/self/fd")
	h.Descriptors = len(files)
	maps, _ := os.ReadFile("/proc/self/maps")
	h.Areas = bytes.Count(maps, []byte("memfd:sdp"))
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			h.Memory = kb << 10
		}
	}
	return h
}

// keptSegments is how many segments a process keeps of those that it made, and of those of its peers; see internal/shm.
const keptSegments = 4

// Excess describes what h holds more than before, allowing slack more bytes of memory. It
// returns "" if there is nothing.
func (h Held) Excess(before Held, slack int) string {
	var more []string
	for _, v := range []struct {
		name     string
		now, was int
	}{
		{"goroutines", h.Goroutines, before.Goroutines},
		{"descriptors", h.Descriptors, before.Descriptors + keptSegments},
		{"areas", h.Areas, before.Areas + 2*keptSegments},
		{"bytes of memory", h.Memory, before.Memory + slack},
	} {
		if v.now > v.was {
			more = append(more, strconv.Itoa(v.now)+" "+v.name+", want at most "+strconv.Itoa(v.was))
		}
	}
	return strings.Join(more, "; ")
}
