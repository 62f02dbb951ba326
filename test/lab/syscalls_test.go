package lab_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestSystemCalls counts the system calls of SDP over rxe beside those of rsocket: of all threads of
// both processes, for a round trip of 64 bytes and for a Write of 64 KB. Each figure is the
// difference of a long run and a short one, so that starting up does not count. What it prints is
// in docs/experiments.md.
//
// sched_yield is counted apart: it only gives the processor to a thread that wants it.
func TestSystemCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; make verbs runs this test")
	}
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "test/lab/inside"))
	m.Run(t, "rdma link add rxe0 type rxe netdev eth0; mount -t tracefs none "+tracing)
	names := make(map[string]bool)
	reads := make(map[string]float64)
	var table strings.Builder
	for i, r := range callRows {
		calls := r.count(t, m, 7600+2*i)
		total := 0.0
		var most []string
		for name, n := range calls {
			if name != "sched_yield" {
				total += max(0, n) // a thread that wakes up now and then may count less in the long run
			}
			if n >= 0.05 {
				names[name] = true
				most = append(most, fmt.Sprintf("%s %.2f", name, n))
			}
		}
		slices.Sort(most)
		fmt.Fprintf(&table, "%-36s %6.2f without sched_yield: %s\n", r.name, total, strings.Join(most, ", "))
		reads[r.name] = calls["read"]
	}
	assert.Less(t, reads[spinning], reads[parked]) // polling reads memory
	assert.True(t, names["write"], "no system call was counted")
	t.Logf("system calls of both processes:\n%s", table.String())
}

// callRow is a program whose system calls are counted.
type callRow struct {
	name        string
	program     string // the name of its processes
	script      string // %[1]d: how often it does what is counted, %[2]d: a port
	short, long int
}

const (
	spinning = "64 B round trip, spinning"
	parked   = "64 B round trip, parked"
)

var callRows = []callRow{
	sdpCalls(spinning, "PingPong", "100ms", 500, 2500),
	sdpCalls("64 B round trip, default", "PingPong", "", 500, 2500),
	sdpCalls(parked, "PingPong", "-1s", 200, 800),
	sdpCalls("64 B round trip, TCP of package net", "PingPongTCP", "", 200, 800),
	rsocketCalls("64 B round trip, rsocket blocking", "-T b"),
	sdpCalls("64 KB Write", "Stream64KB", "", 100, 400),
	sdpCalls("64 KB Write, zero copy", "Stream64KBZeroCopy", "", 100, 400),
}

// sdpCalls counts the calls of a benchmark of test/lab/inside. busy is how long its waits poll;
// "": as long as the policy decides.
func sdpCalls(name, benchmark, busy string, short, long int) callRow {
	env := ""
	if busy != "" {
		env = "SDP_BUSY_POLL=" + busy + " "
	}
	return callRow{
		name: name, program: "inside.test", short: short, long: long,
		script: atGuest + env + "./inside.test -test.run '^$' -test.bench '^Benchmark" + benchmark + "$' -test.benchtime %[1]dx # %[2]d",
	}
}

// rsocketCalls counts those of rstream, for comparison. Its polling mode also polls while it
// connects, so a difference of two runs of that says nothing.
func rsocketCalls(name, mode string) callRow {
	return callRow{
		name: name, program: "rstream", short: 500, long: 2500,
		script: serverAndClient("rstream -p %[2]d -S 64 -C 1 -I %[1]d "+mode, "-b "+lab.Guest, "-s "+lab.Guest),
	}
}

const tracing = "/sys/kernel/tracing"

// count returns how many calls the program makes for each of what it does, by their names.
func (r *callRow) count(t *testing.T, m *lab.Machine, port int) map[string]float64 {
	t.Helper()
	calls := make(map[string]float64)
	for i, times := range []int{r.long, r.short} {
		output := m.Run(t, fmt.Sprintf(`
			event=%s/events/raw_syscalls/sys_enter
			hist='hist:keys=id.syscall:size=1024 if comm == "%s"'
			echo "$hist" >$event/trigger
			(
				%s
			) >/dev/null 2>&1
			cat $event/hist
			echo "!$hist" >$event/trigger`, tracing, r.program, fmt.Sprintf(r.script, times, port+i)))
		found := histogram.FindAllStringSubmatch(output, -1)
		require.NotEmpty(t, found, "%s: %s", r.name, output)
		require.Contains(t, output, "Dropped: 0", r.name)
		for _, match := range found {
			n, err := strconv.ParseFloat(match[2], 64)
			require.NoError(t, err)
			if i == 1 {
				n = -n
			}
			calls[match[1]] += n / float64(r.long-r.short)
		}
	}
	return calls
}

// histogram matches a line of the kernel's histogram.
var histogram = regexp.MustCompile(`(?m)^\{ id: sys_(\w+) .*hitcount:\s+(\d+)`)
