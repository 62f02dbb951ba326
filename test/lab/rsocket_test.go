package lab_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// rateRounds is the number of rounds of measurements.
const rateRounds = 5

// TestRates compares SDP over rxe with rsocket, and with the device's own rates in perftest.
// Each runs two processes in one machine, and all take turns, because absolute times mean
// nothing on an emulated processor. It prints the ratios.
func TestRates(t *testing.T) {
	if os.Getenv("GOSDP_RATES") == "" {
		t.Skip("missing: GOSDP_RATES, because this takes minutes on an otherwise idle machine")
	}
	m := lab.Boot(t, lab.Config{})
	m.Copy(t, buildTest(t, "test/lab/inside"))
	m.Run(t, "rdma link add rxe0 type rxe netdev eth0")
	found := make(map[string][]float64)
	port := 7500
	for range rateRounds {
		for _, r := range rates {
			port++ // rsocket leaves its port in use for some time
			got := r.measure(t, m, port)
			found[r.name] = append(found[r.name], got)
		}
	}
	var table strings.Builder
	for _, r := range rates {
		of := found[r.name]
		slices.Sort(of)
		fmt.Fprintf(&table, "%-28s %10.2f %-5s (%.2f to %.2f)", r.name, median(of), r.unit, of[0], of[len(of)-1])
		for _, other := range r.against {
			// The ratio of rates, or the inverse ratio of times.
			ratio := median(of) / median(found[other])
			if r.unit == "µs" {
				ratio = 1 / ratio
			}
			fmt.Fprintf(&table, "  %.2f of %s", ratio, other)
		}
		table.WriteByte('\n')
	}
	t.Logf("%d rounds, medians:\n%s", rateRounds, table.String())
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// rate is a measurement.
type rate struct {
	name, unit string
	script     string // %[1]d: a port
	value      *regexp.Regexp
	convert    func(float64) float64 // from the program's output to the unit
	against    []string
}

var rates = []rate{
	rstream(64, 1, 2000),
	inside("PingPong", 2000, "rstream 64", "ib_send_lat 64"),
	perftest("ib_send_lat", 64, 2000),
	rstream(64<<10, 300, 1),
	inside("Stream64KB", 300, "rstream 65536", "ib_read_bw 65536"),
	inside("Stream64KBZeroCopy", 300, "rstream 65536", "ib_read_bw 65536"),
	perftest("ib_read_bw", 64<<10, 300),
	rstream(1<<20, 20, 1),
	inside("Stream1MB", 20, "rstream 1048576", "ib_read_bw 1048576"),
	inside("Stream1MBZeroCopy", 20, "rstream 1048576", "ib_read_bw 1048576"),
	perftest("ib_read_bw", 1<<20, 20),
}

// rstream is rdma-core's rstream, with its default of continuous polling. It prints the time
// of a transfer, which is half a round trip.
func rstream(size, count, iterations int) rate {
	r := rate{name: fmt.Sprintf("rstream %d", size), value: regexp.MustCompile(`(?m)^custom .*?([0-9.]+)$`)}
	r.script = serverAndClient(fmt.Sprintf("rstream -p %%[1]d -S %d -C %d -I %d", size, count, iterations), "-b "+lab.Guest, "-s "+lab.Guest)
	if count == 1 {
		r.unit, r.convert = "µs", func(us float64) float64 { return 2 * us }
	} else {
		r.unit, r.convert = "MB/s", func(us float64) float64 { return float64(size) / us }
	}
	return r
}

// serverAndClient returns a script that runs a program as a server and as a client, with
// further arguments for each.
func serverAndClient(program, server, client string) string {
	return fmt.Sprintf(`
		timeout 60 %[1]s %[2]s >/dev/null 2>&1 &
		for i in {1..50}; do
			timeout 60 %[1]s %[3]s 2>/dev/null && break
			sleep 0.1
		done
		wait`, program, server, client)
}

// perftest measures the device without a stream protocol.
func perftest(program string, size, count int) rate {
	r := rate{name: fmt.Sprintf("%s %d", program, size)}
	r.script = serverAndClient(fmt.Sprintf("%s -d rxe0 -R -F -s %d -n %d -p %%[1]d", program, size, count), "", lab.Guest)
	columns := regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d\s+%d\s+[0-9.]+\s+([0-9.]+)`, size, count))
	r.unit, r.value, r.convert = "MB/s", columns, func(mib float64) float64 { return mib * 1.048576 }
	if strings.HasSuffix(program, "lat") { // half a round trip: min, max, typical, average
		columns = regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d\s+%d(?:\s+[0-9.]+){3}\s+([0-9.]+)`, size, count))
		r.unit, r.value, r.convert = "µs", columns, func(us float64) float64 { return 2 * us }
	}
	return r
}

// inside is a benchmark of test/lab/inside.
func inside(name string, count int, against ...string) rate {
	r := rate{name: "sdp " + name, against: against}
	r.script = fmt.Sprintf("%s./inside.test -test.run '^$' -test.bench '^Benchmark%s$' -test.benchtime %dx # %%[1]d", atGuest, name, count)
	if strings.HasPrefix(name, "Ping") {
		r.unit, r.value = "µs", regexp.MustCompile(`([0-9.]+) ns/op`)
		r.convert = func(ns float64) float64 { return ns / 1e3 }
	} else {
		r.unit, r.value = "MB/s", regexp.MustCompile(`([0-9.]+) MB/s`)
		r.convert = func(mb float64) float64 { return mb }
	}
	return r
}

func (r *rate) measure(t *testing.T, m *lab.Machine, port int) float64 {
	t.Helper()
	output := m.Run(t, fmt.Sprintf(r.script, port))
	match := r.value.FindStringSubmatch(output)
	require.NotNil(t, match, "%s: %s", r.name, output)
	value, err := strconv.ParseFloat(match[1], 64)
	require.NoError(t, err)
	return r.convert(value)
}
