// Package metrics exports what package sdp counts, to Prometheus and to OpenTelemetry:
//
//	prometheus.MustRegister(metrics.NewCollector())
//
//	registration, err := metrics.Register(otel.Meter("sdp"))
//
// The durations of Dials are measured where the program asks for it, with a context of
// [Collector.MeasureDials] or [Registration.MeasureDials]:
//
//	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
//		return dialer.DialContext(collector.MeasureDials(ctx), network, address)
//	}
//
// Otherwise the package does nothing between two scrapes.
//
// Labels are devices, directions and fixed reasons, so there are few series. Single connections
// have none; "sdp stat" and the page of package sdp/debug show them.
package metrics

import (
	"context"
	"fmt"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/stats"
)

// A snapshot is the set of values that one scrape exports.
type snapshot struct {
	totals stats.Totals
	setups stats.Setups
	open   map[string]int // by device
	unread int64
}

func take() snapshot {
	s := snapshot{totals: sdp.Stats(), setups: sdp.SetupStats(), open: make(map[string]int)}
	for device := range s.setups.Devices {
		s.open[device] = 0 // a series does not vanish with the last connection
	}
	for _, c := range sdp.Connections() {
		s.unread += int64(c.Unread)
		if !c.Closing {
			s.open[c.Device]++
		}
	}
	return s
}

// A value is a sample with its attributes, which are pairs of a name and a value.
type value struct {
	attributes []string
	n          float64
}

// An instrument is one metric in both systems.
type instrument struct {
	prometheus string // its name there
	otel       string // and there
	unit       string // of UCUM, for OpenTelemetry
	help       string
	attributes []string // their names
	counter    bool     // it only grows
	read       func(s *snapshot) []value
}

func one(n float64) []value { return []value{{nil, n}} }

func byKey[K comparable, N int | int64 | uint64](m map[K]N) []value {
	values := make([]value, 0, len(m))
	for key, n := range m {
		values = append(values, value{[]string{fmt.Sprint(key)}, float64(n)})
	}
	return values
}

// instruments are all metrics except the durations of dials.
var instruments = []instrument{
	{
		"sdp_connections", "sdp.connections", "{connection}", "Connections of package sdp that are open, by what carries their bytes now.",
		[]string{"device"}, false, func(s *snapshot) []value { return byKey(s.open) },
	},
	{
		"sdp_connections_closing", "sdp.connections.closing", "{connection}", "Connections that were closed and are still delivering.",
		nil, false, func(s *snapshot) []value { return one(float64(s.totals.Closing)) },
	},
	{
		"sdp_connections_opened_total", "sdp.connections.opened", "{connection}", "Connections of package sdp that were opened, dialled or accepted, by the device with which they began.",
		[]string{"device"}, true, func(s *snapshot) []value { return byKey(s.setups.Devices) },
	},
	{
		"sdp_moves_total", "sdp.moves", "{move}", "Moves of connections from TCP to shared memory.",
		nil, true, func(s *snapshot) []value { return one(float64(s.totals.Moves)) },
	},
	{
		"sdp_dials_plain_total", "sdp.dials.plain", "{dial}", "Dials that returned a connection of package net, by reason.",
		[]string{"reason"}, true, func(s *snapshot) []value { return byKey(s.setups.Plain) },
	},
	{
		"sdp_accepts_plain_total", "sdp.accepts.plain", "{connection}", "Accepts that returned a connection of package net, by reason.",
		[]string{"reason"}, true, func(s *snapshot) []value { return byKey(s.setups.PlainAccepts) },
	},
	{
		"sdp_dials_failed_total", "sdp.dials.failed", "{dial}", "Dials that returned an error.",
		nil, true, func(s *snapshot) []value { return one(float64(s.setups.Failed)) },
	},
	{
		"sdp_devices_declined_total", "sdp.devices.declined", "{device}", "Devices that were allowed for a connection and that it does not use.",
		nil, true, func(s *snapshot) []value { return one(float64(s.totals.Declined)) },
	},
	{
		"sdp_closes_reset_total", "sdp.closes.reset", "{connection}", "Closed connections that were reset because too many were still delivering.",
		nil, true, func(s *snapshot) []value { return one(float64(s.totals.CloseResets)) },
	},
	{
		"sdp_bytes_total", "sdp.io", "By", "Bytes of the streams, by direction and mode: through the TCP socket or the ring in shared memory, or in messages over RDMA (bcopy) or without a copy (zcopy).",
		[]string{"direction", "mode"}, true, func(s *snapshot) []value {
			return []value{
				{[]string{"sent", "socket"}, float64(s.totals.TCPSent)},
				{[]string{"sent", "ring"}, float64(s.totals.ShmSent)},
				{[]string{"sent", "bcopy"}, float64(s.totals.BcopySent.Bytes)},
				{[]string{"sent", "zcopy"}, float64(s.totals.ZCopySent)},
				{[]string{"received", "socket"}, float64(s.totals.TCPReceived)},
				{[]string{"received", "ring"}, float64(s.totals.ShmReceived)},
				{[]string{"received", "bcopy"}, float64(s.totals.BcopyReceived.Bytes)},
				{[]string{"received", "zcopy"}, float64(s.totals.ZCopyReceived)},
			}
		},
	},
	{
		"sdp_messages_total", "sdp.messages", "{message}", "Messages over RDMA, by direction and by whether they carried bytes (data) or only the protocol's news (control).",
		[]string{"direction", "kind"}, true, func(s *snapshot) []value {
			return []value{
				{[]string{"sent", "data"}, float64(s.totals.BcopySent.Messages)},
				{[]string{"sent", "control"}, float64(s.totals.ControlSent)},
				{[]string{"received", "data"}, float64(s.totals.BcopyReceived.Messages)},
				{[]string{"received", "control"}, float64(s.totals.ControlReceived)},
			}
		},
	},
	{
		"sdp_credit_stalls_total", "sdp.credit.stalls", "{write}", "Writes over RDMA that waited because the peer had no room.",
		nil, true, func(s *snapshot) []value { return one(float64(s.totals.CreditStalls)) },
	},
	{
		"sdp_zcopy_advertised_total", "sdp.zcopy.advertised", "{transfer}", "Writes and Reads that were offered for transfer without a copy.",
		nil, true, func(s *snapshot) []value { return one(float64(s.totals.Advertised)) },
	},
	{
		"sdp_zcopy_cancelled_total", "sdp.zcopy.cancelled", "{transfer}", "Such offers that were withdrawn.",
		nil, true, func(s *snapshot) []value { return one(float64(s.totals.Cancels)) },
	},
	{
		"sdp_unread_bytes", "sdp.unread", "By", "Bytes that have arrived and that the program has not read.",
		nil, false, func(s *snapshot) []value { return one(float64(s.unread)) },
	},
	{
		"sdp_memory_promised_bytes", "sdp.memory.promised", "By", "Memory that connections have promised to their peers.",
		nil, false, func(s *snapshot) []value { return one(float64(s.totals.Memory)) },
	},
	{
		"sdp_memory_limit_bytes", "sdp.memory.limit", "By", "Memory that connections may promise.",
		nil, false, func(s *snapshot) []value { return one(float64(s.totals.MemoryLimit)) },
	},
	{
		"sdp_memory_pinned_bytes", "sdp.memory.pinned", "By", "Memory that is locked for RDMA, by the hardware's device.",
		[]string{"rdma_device"}, false, func(s *snapshot) []value { return byKey(s.totals.Pinned) },
	},
}

// dialBounds are the upper bounds of the buckets of durations of Dials, in seconds.
var dialBounds = []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1, 5}

// The results of Dials whose durations are measured. Those that fail are counted only.
const (
	resultSDP = "sdp" // a connection of package sdp
	resultTCP = "tcp" // one of package net
)

// withDialTimes returns a context with which Dials pass their results and durations to record.
func withDialTimes(ctx context.Context, record func(result string, seconds float64)) context.Context {
	return sdp.WithDialHook(ctx, func(d stats.Dial) {
		switch {
		case d.Err != nil:
		case d.Device != "":
			record(resultSDP, d.Duration.Seconds())
		default:
			record(resultTCP, d.Duration.Seconds())
		}
	})
}
