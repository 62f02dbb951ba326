package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/metrics"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/stats"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	meeting.TestSelf = true // both ends of the connections are in this process
	os.Exit(m.Run())
}

// A measurer measures the Dials with its contexts.
type measurer interface {
	MeasureDials(ctx context.Context) context.Context
}

// traffic opens a connection that carries bytes, of which some stay unread, and makes a Dial of plain TCP. It
// returns the device with which the connection has begun, and the mode of the bytes. Its Dials are measured.
func traffic(t *testing.T, measured measurer) (device, mode string) {
	t.Helper()
	l, err := sdp.Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		s, _ := l.Accept()
		accepted <- s
	}()
	ctx := measured.MeasureDials(t.Context())
	c, err := new(sdp.Dialer).DialContext(ctx, "sdp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	s := <-accepted
	require.NotNil(t, s)
	t.Cleanup(func() { s.Close() })
	require.Eventually(t, func() bool { // the ends have met, and move when they exchange something
		for _, ends := range [][2]net.Conn{{c, s}, {s, c}} {
			_, err := ends[0].Write([]byte("x"))
			require.NoError(t, err)
			_, err = io.ReadFull(ends[1], make([]byte, 1))
			require.NoError(t, err)
		}
		s := c.(*sdp.Conn).Stats()
		if s.BcopySent.Messages > 0 { // this system has no shared memory
			device, mode = s.Device, "bcopy"
			return true
		}
		device, mode = "tcp", "ring"
		return s.ShmSent > 0
	}, patience, time.Millisecond)
	_, err = c.Write(make([]byte, 5000))
	require.NoError(t, err)
	_, err = io.ReadFull(s, make([]byte, 2000))
	require.NoError(t, err)

	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	p, err := (&sdp.Dialer{Config: &sdp.Config{Devices: []string{"tcp"}}}).DialContext(ctx, "tcp", plain.Addr().String())
	require.NoError(t, err)
	require.NoError(t, p.Close())
	return device, mode
}

func TestCollectorFollowsTheConventions(t *testing.T) {
	collector := metrics.NewCollector()
	traffic(t, collector)
	problems, err := testutil.CollectAndLint(collector)
	require.NoError(t, err)
	require.Empty(t, problems, "%v", []promlint.Problem(problems))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics.NewCollector()))
	_, err = registry.Gather()
	require.NoError(t, err)
}

// TestPrometheusScrapes has the real server scrape a program, and reads the values back.
func TestPrometheusScrapes(t *testing.T) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("missing: prometheus")
	}
	registry := prometheus.NewRegistry()
	collector := metrics.NewCollector()
	registry.MustRegister(collector)
	device, mode := traffic(t, collector)
	program := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer program.Close()

	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 100ms}
scrape_configs: [{job_name: sdp, static_configs: [{targets: [%q]}]}]
`, program.Listener.Addr()), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	server := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+address)
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	require.NoError(t, server.Start())
	defer func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()

	query := func(q string) string {
		response, err := http.Get("http://" + address + "/api/v1/query?query=" + strings.ReplaceAll(q, "\"", "%22"))
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		var answer struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return err.Error()
		}
		if len(answer.Data.Result) != 1 {
			return fmt.Sprintf("%d series", len(answer.Data.Result))
		}
		return answer.Data.Result[0].Value[1].(string)
	}
	totals, setups := sdp.Stats(), sdp.SetupStats()
	now := func(f func(stats.Totals) any) func() any { return func() any { return f(sdp.Stats()) } }
	for q, want := range map[string]any{
		`sum(sdp_connections)`: 2,
		fmt.Sprintf(`sdp_connections_opened_total{device=%q}`, device): setups.Devices[device],
		`sdp_moves_total`: totals.Moves,
		// Idle connections come home, and take with them what nobody has read.
		`sdp_bytes_total{direction="sent",mode="socket"}`:                  now(func(t stats.Totals) any { return t.TCPSent }),
		fmt.Sprintf(`sdp_bytes_total{direction="sent",mode=%q}`, mode):     now(func(t stats.Totals) any { return t.ShmSent + t.BcopySent.Bytes }),
		fmt.Sprintf(`sdp_bytes_total{direction="received",mode=%q}`, mode): now(func(t stats.Totals) any { return t.ShmReceived + t.BcopyReceived.Bytes }),
		`sdp_unread_bytes`:                                      now(func(stats.Totals) any { return unread() }),
		`sdp_memory_promised_bytes`:                             now(func(t stats.Totals) any { return t.Memory }),
		`sdp_memory_limit_bytes`:                                totals.MemoryLimit,
		`sdp_dials_plain_total{reason="off"}`:                   setups.Plain[stats.PlainOff],
		`sdp_dial_duration_seconds_count{result="sdp"}`:         1,
		`sdp_dial_duration_seconds_count{result="tcp"}`:         1,
		`sdp_dial_duration_seconds_bucket{result="sdp",le="5"}`: 1,
	} {
		var got string
		require.Eventually(t, func() bool {
			got = query(q)
			if now, ok := want.(func() any); ok {
				return got == fmt.Sprint(now())
			}
			return got == fmt.Sprint(want)
		}, patience, 100*time.Millisecond, "%s", q)
	}
}

func unread() (n int) {
	for _, c := range sdp.Connections() {
		n += c.Unread
	}
	return n
}

func TestOpenTelemetry(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	registration, err := metrics.Register(provider.Meter("test"))
	require.NoError(t, err)
	_, mode := traffic(t, registration)
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &data))
	got := make(map[string]float64)
	units := make(map[string]string)
	dials := make(map[string]metricdata.HistogramDataPoint[float64])
	for _, m := range data.ScopeMetrics[0].Metrics {
		units[m.Name] = m.Unit
		switch d := m.Data.(type) {
		case metricdata.Sum[float64]:
			for _, p := range d.DataPoints {
				got[m.Name+labels(p.Attributes)] = p.Value
			}
		case metricdata.Histogram[float64]:
			require.Equal(t, "sdp.dial.duration", m.Name)
			for _, p := range d.DataPoints {
				dials[labels(p.Attributes)] = p
			}
		default:
			require.Fail(t, "unexpected data", "%T of %s", d, m.Name)
		}
	}
	require.EqualValues(t, 2, got["sdp.connections,sdp.device=shm"]+got["sdp.connections,sdp.device=tcp"]+got["sdp.connections,sdp.device=iwarp"])
	sent := got["sdp.io,sdp.direction=sent,sdp.mode="+mode]
	require.NotZero(t, sent)
	require.EqualValues(t, sdp.Stats().ShmSent+sdp.Stats().BcopySent.Bytes, sent)
	require.EqualValues(t, sdp.Stats().Moves, got["sdp.moves"])
	require.EqualValues(t, 3000, got["sdp.unread"])
	require.Equal(t, "By", units["sdp.io"])
	require.Equal(t, "s", units["sdp.dial.duration"])
	up, plain := dials[",sdp.result=sdp"], dials[",sdp.result=tcp"]
	require.EqualValues(t, 1, up.Count)
	require.EqualValues(t, 1, plain.Count)
	require.Positive(t, up.Sum)
	require.Equal(t, 50e-6, up.Bounds[0])
	require.Equal(t, 5., up.Bounds[len(up.Bounds)-1])
	require.NoError(t, registration.Unregister())
	traffic(t, registration)
	data = metricdata.ResourceMetrics{}
	require.NoError(t, reader.Collect(context.Background(), &data))
	for _, m := range data.ScopeMetrics[0].Metrics {
		if d, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, p := range d.DataPoints {
				require.EqualValues(t, 1, p.Count, "a Dial after the end of the registration is recorded")
			}
		}
	}
}

// TestOnlyMeasuredDialsHaveDurations, and failed ones have none.
func TestOnlyMeasuredDialsHaveDurations(t *testing.T) {
	collector := metrics.NewCollector()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	count := func() (n uint64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "sdp_dial_duration_seconds" {
				for _, m := range f.GetMetric() {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
		return n
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	for _, v := range []struct {
		ctx     context.Context
		address string
		counted uint64
	}{
		{t.Context(), plain.Addr().String(), 0},
		{collector.MeasureDials(t.Context()), plain.Addr().String(), 1},
		{collector.MeasureDials(t.Context()), "127.0.0.1:1", 1},
	} {
		if c, err := new(sdp.Dialer).DialContext(v.ctx, "tcp", v.address); err == nil {
			c.Close()
		}
		require.Equal(t, v.counted, count())
	}
}

// TestMeterIsRegisteredOnce: two registrations would report everything twice.
func TestMeterIsRegisteredOnce(t *testing.T) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	first, err := metrics.Register(provider.Meter("once"))
	require.NoError(t, err)
	_, err = metrics.Register(provider.Meter("once"))
	require.ErrorContains(t, err, "already")
	other, err := metrics.Register(provider.Meter("another"))
	require.NoError(t, err)
	require.NoError(t, other.Unregister())

	require.NoError(t, first.Unregister())
	again, err := metrics.Register(provider.Meter("once"))
	require.NoError(t, err)
	require.NoError(t, first.Unregister(), "nothing is left to end")
	_, err = metrics.Register(provider.Meter("once"))
	require.ErrorContains(t, err, "already")
	require.NoError(t, again.Unregister())

	for range 2 { // meters without an identity
		registration, err := metrics.Register(noop.NewMeterProvider().Meter("once"))
		require.NoError(t, err)
		defer registration.Unregister()
	}
}

// TestDashboardKnowsTheMetrics holds the Grafana dashboard to the collector.
func TestDashboardKnowsTheMetrics(t *testing.T) {
	text, err := os.ReadFile("grafana/sdp.json")
	require.NoError(t, err)
	var board struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	known := make(chan *prometheus.Desc, 100)
	metrics.NewCollector().Describe(known)
	close(known)
	var names []string
	for d := range known {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		names = append(names, name)
	}
	require.NotEmpty(t, board.Panels)
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			for _, word := range strings.FieldsFunc(target.Expr, func(r rune) bool {
				return r != '_' && (r < 'a' || r > 'z')
			}) {
				if strings.HasPrefix(word, "sdp_") {
					base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(word, "_bucket"), "_count"), "_sum")
					require.True(t, contains(names, word) || contains(names, base), "%s: there is no metric %s", p.Title, word)
				}
			}
		}
	}
}

// labels returns the attributes as ",name=value".
func labels(set attribute.Set) (text string) {
	for _, a := range set.ToSlice() {
		text += "," + string(a.Key) + "=" + a.Value.AsString()
	}
	return text
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
