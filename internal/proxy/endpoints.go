package proxy

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Handler returns a handler for /live, /ready and /metrics.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "live\n") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !p.ready.Load() {
			http.Error(w, "not ready: the proxy is starting or stopping", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ready\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		p.writeMetrics(w)
	})
	return mux
}

// A family is a metric of Prometheus with its samples.
type family struct {
	name, kind, help string
	samples          []sample
}

// A sample is a value with its labels in Prometheus's text format.
type sample struct {
	labels string
	value  float64
}

func (p *Proxy) writeMetrics(w io.Writer) {
	for _, f := range append(p.ownMetrics(), sdpMetrics(sdp.Stats())...) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, s := range f.samples {
			fmt.Fprintf(w, "%s%s %s\n", f.name, s.labels, strconv.FormatFloat(s.value, 'g', -1, 64))
		}
	}
}

// ownMetrics returns the metrics of the relays.
func (p *Proxy) ownMetrics() []family {
	const (
		open = iota
		accepted
		failed
		bytes
	)
	families := []family{
		open:     {name: "sdp_proxy_connections", kind: "gauge", help: "Connections that are relayed now."},
		accepted: {name: "sdp_proxy_accepted_total", kind: "counter", help: "Connections that were accepted."},
		failed:   {name: "sdp_proxy_unreachable_total", kind: "counter", help: "Connections that were reset because their target could not be reached."},
		bytes:    {name: "sdp_proxy_bytes_total", kind: "counter", help: "Bytes that were relayed: up is towards the target. Those of a connection between two endpoints of plain TCP are counted at its end."},
	}
	add := func(of int, labels string, value float64) {
		families[of].samples = append(families[of].samples, sample{labels, value})
	}
	all := p.totals()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		t := all[key]
		labels := fmt.Sprintf("{listen=%q}", key)
		add(open, labels, float64(t.open))
		add(accepted, labels, float64(t.accepted))
		add(failed, labels, float64(t.failed))
		add(bytes, fmt.Sprintf("{listen=%q,direction=\"up\"}", key), float64(t.up))
		add(bytes, fmt.Sprintf("{listen=%q,direction=\"down\"}", key), float64(t.down))
	}
	return append(families,
		family{"sdp_proxy_reloads_total", "counter", "Configurations that were taken, the first one included, and those that were not.", []sample{
			{`{result="ok"}`, float64(p.reloads.Load())},
			{`{result="rejected"}`, float64(p.rejected.Load())},
		}},
	)
}

// totals are the summed counters of entrances.
type totals struct {
	open             int
	accepted, failed uint64
	up, down         int64
}

func (t *totals) add(e *entrance) {
	t.accepted += e.accepted.Load()
	t.failed += e.failed.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	t.open += len(e.relays)
	t.up += e.up
	t.down += e.down
	for r := range e.relays {
		up, down := r.carried()
		t.up += up
		t.down += down
	}
}

func (t *totals) sum(o totals) {
	t.open += o.open
	t.accepted += o.accepted
	t.failed += o.failed
	t.up += o.up
	t.down += o.down
}

// totals returns the counters of each address at which the proxy has listened.
func (p *Proxy) totals() map[string]totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := maps.Clone(p.past)
	for _, e := range slices.AppendSeq(slices.Clone(p.removed), maps.Values(p.entrances)) {
		sum := all[e.key]
		sum.add(e)
		all[e.key] = sum
	}
	return all
}

// sdpMetrics returns the metrics of the process's SDP connections.
func sdpMetrics(t stats.Totals) []family {
	one := func(name, kind, help string, value float64) family {
		return family{name, kind, help, []sample{{"", value}}}
	}
	locked := family{name: "sdp_memory_pinned_bytes", kind: "gauge", help: "Memory that is locked for RDMA, by the hardware's device."}
	for _, device := range slices.Sorted(maps.Keys(t.Pinned)) {
		locked.samples = append(locked.samples, sample{fmt.Sprintf("{rdma_device=%q}", device), float64(t.Pinned[device])})
	}
	return []family{
		locked,
		one("sdp_connections", "gauge", "Connections of package sdp that are open now.", float64(t.Open)),
		one("sdp_connections_opened_total", "counter", "Connections of package sdp that were opened.", float64(t.Opened)),
		one("sdp_moves_total", "counter", "Moves of connections from TCP to shared memory.", float64(t.Moves)),
		{"sdp_bytes_total", "counter", "Bytes that these connections have carried, by direction and mode.", []sample{
			{`{direction="sent",mode="socket"}`, float64(t.TCPSent)},
			{`{direction="sent",mode="ring"}`, float64(t.ShmSent)},
			{`{direction="sent",mode="bcopy"}`, float64(t.BcopySent.Bytes)},
			{`{direction="sent",mode="zcopy"}`, float64(t.ZCopySent)},
			{`{direction="received",mode="socket"}`, float64(t.TCPReceived)},
			{`{direction="received",mode="ring"}`, float64(t.ShmReceived)},
			{`{direction="received",mode="bcopy"}`, float64(t.BcopyReceived.Bytes)},
			{`{direction="received",mode="zcopy"}`, float64(t.ZCopyReceived)},
		}},
		one("sdp_credit_stalls_total", "counter", "Writes that waited because the peer had no room.", float64(t.CreditStalls)),
		one("sdp_memory_promised_bytes", "gauge", "Memory that connections have promised to their peers.", float64(t.Memory)),
		one("sdp_memory_limit_bytes", "gauge", "Memory that connections may promise.", float64(t.MemoryLimit)),
	}
}
