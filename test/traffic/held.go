package traffic

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Held is what a process holds that connections may leave behind. What only /proc
// tells is 0 where there is none.
type Held struct {
	Goroutines  int
	Descriptors int
	Areas       int // of shared memory that are mapped
	Memory      int // resident bytes of its own
}

// Holds counts, behind a collection of all garbage.
func Holds() Held {
	for range 3 { // pools give back what they have in two
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

// More says what h holds more than before, beyond slack bytes of memory; "" if
// nothing.
func (h Held) More(before Held, slack int) string {
	var more []string
	for _, v := range []struct {
		name     string
		now, was int
	}{
		{"goroutines", h.Goroutines, before.Goroutines},
		{"descriptors", h.Descriptors, before.Descriptors},
		{"areas", h.Areas, before.Areas},
		{"bytes of memory", h.Memory, before.Memory + slack},
	} {
		if v.now > v.was {
			more = append(more, strconv.Itoa(v.now)+" "+v.name+", at most "+strconv.Itoa(v.was)+" were to be left")
		}
	}
	return strings.Join(more, "; ")
}
