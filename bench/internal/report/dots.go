package report

import (
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// dots are one number of several cases: a line for each case, a dot for each
// contender.
type dots struct {
	title, x string
	rows     []dotRow
	gains    bool // the number is the ratio to the baseline, turned so that more is better
}

type dotRow struct {
	kind   harness.Kind
	size   int
	conns  int
	metric string
}

// smaller tells whether less of a metric is better.
func smaller(metric string) bool {
	switch metric {
	case harness.BytesPerS, harness.MsgsPerS, harness.ReqPerS:
		return false
	}
	return true
}

var overview = dots{
	title: "How many times as fast as TCP: by rate, or by TCP's time over its own",
	x:     "times",
	gains: true,
	rows: []dotRow{
		{harness.RTT, 64, 1, harness.P50},
		{harness.RTT, 64 << 10, 1, harness.P50},
		{harness.RTT, 1 << 20, 1, harness.P50},
		{harness.RTTIdle, 64, 1, harness.P50},
		{harness.Stream, 64, 1, harness.MsgsPerS},
		{harness.Stream, 4 << 10, 1, harness.BytesPerS},
		{harness.Stream, 64 << 10, 1, harness.BytesPerS},
		{harness.Stream, 1 << 20, 1, harness.BytesPerS},
		{harness.Duplex, 64 << 10, 1, harness.BytesPerS},
		{harness.Setup, 1, 1, harness.P50},
		{harness.HTTP, 1 << 10, 1, harness.ReqPerS},
		{harness.HTTP, 1 << 10, 16, harness.ReqPerS},
		{harness.GRPC, 1 << 10, 1, harness.P50},
		{harness.GRPCStream, 1 << 10, 1, harness.MsgsPerS},
	},
}

var latencies = dots{
	title: "How long one operation takes",
	x:     "µs",
	rows: []dotRow{
		{harness.RTT, 64, 1, harness.P50},
		{harness.RTT, 64, 1, harness.P99},
		{harness.RTTIdle, 64, 1, harness.P50},
		{harness.Setup, 1, 1, harness.P50},
		{harness.HTTP, 1 << 10, 1, harness.P50},
		{harness.HTTP, 1 << 10, 1, harness.P99},
		{harness.HTTP, 1 << 10, 16, harness.P50},
		{harness.HTTP, 1 << 10, 16, harness.P99},
		{harness.GRPC, 1 << 10, 1, harness.P50},
		{harness.GRPC, 1 << 10, 1, harness.P99},
	},
}

var costs = dots{
	title: "Processor time of both processes",
	x:     "µs an operation",
	rows: []dotRow{
		{harness.RTT, 64, 1, harness.CPUPerMReq},
		{harness.RTTIdle, 64, 1, harness.CPUPerMReq},
		{harness.Stream, 64, 1, harness.CPUPerMReq},
		{harness.Setup, 1, 1, harness.CPUPerMReq},
		{harness.HTTP, 1 << 10, 1, harness.CPUPerMReq},
		{harness.HTTP, 1 << 10, 16, harness.CPUPerMReq},
		{harness.GRPC, 1 << 10, 1, harness.CPUPerMReq},
		{harness.GRPCStream, 1 << 10, 1, harness.CPUPerMReq},
	},
}

// drawDots returns nil if no row of it was measured.
func (r *Report) drawDots(d dots) (*picture, error) {
	contenders := r.contenders()
	var rows []dotRow
	for _, row := range d.rows {
		for _, contender := range contenders {
			if _, _, _, ok := r.dot(d, row, contender); ok {
				rows = append(rows, row)
				break
			}
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	height := vg.Length(len(rows)+2) * vg.Length(max(3, len(contenders))) * 2 * vg.Millimeter
	p := newPicture(d.title, d.x, "", max(pictureHeight, height))
	for i, contender := range contenders {
		var points spreads
		for k, row := range rows {
			median, lo, hi, ok := r.dot(d, row, contender)
			if !ok {
				continue
			}
			// The first case is on top, and in it the first contender.
			lane := (float64(i)+0.5)/float64(len(contenders)) - 0.5
			points.addAcross(median, float64(len(rows)-1-k)-0.8*lane, lo, hi)
		}
		if len(points.XYs) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points.XYs)
		if err != nil {
			return nil, err
		}
		bars, err := plotter.NewXErrorBars(points)
		if err != nil {
			return nil, err
		}
		bars.LineStyle, scatter.GlyphStyle = look(contender)
		bars.LineStyle.Dashes = nil
		p.plot.Add(bars, scatter)
		p.legend.Add(contender, scatter)
	}
	var names []plot.Tick
	for k, row := range rows {
		names = append(names, plot.Tick{Value: float64(len(rows) - 1 - k), Label: row.name()})
	}
	p.plot.X.Scale, p.plot.X.Tick.Marker = plot.LogScale{}, decades{}
	p.plot.Y.Tick.Marker = plot.ConstantTicks(names)
	p.plot.Y.Tick.Length = 0
	p.plot.Y.Min, p.plot.Y.Max = -0.6, float64(len(rows))-0.4
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.plot.Add(grid)
	for k := range len(rows) - 1 { // a line between any two cases
		between, err := plotter.NewLine(plotter.XYs{{X: p.plot.X.Min, Y: float64(k) + 0.5}, {X: p.plot.X.Max, Y: float64(k) + 0.5}})
		if err != nil {
			return nil, err
		}
		between.LineStyle = grid.Vertical
		p.plot.Add(between)
	}
	return p, nil
}

// name is the case and the metric, as a label.
func (d dotRow) name() string {
	c := harness.Case{Kind: d.kind, Size: d.size, Conns: d.conns}
	metric := strings.TrimSuffix(d.metric, "_per_s")
	if d.metric == harness.CPUPerMReq {
		return c.Name()
	}
	return c.Name() + " " + metric
}

// dot is where a contender's dot lies.
func (r *Report) dot(d dots, of dotRow, contender string) (median, lo, hi float64, ok bool) {
	row, ok := r.Find(harness.Case{Kind: of.kind, Size: of.size, Conns: of.conns}, contender, All, of.metric)
	if !ok {
		return 0, 0, 0, false
	}
	median, lo, hi = row.Median, row.Lo, row.Hi
	if d.gains {
		if row.Ratio == nil {
			return 0, 0, 0, false
		}
		median, lo, hi = *row.Ratio, quantile(row.Ratios, 0.1), quantile(row.Ratios, 0.9)
		if smaller(of.metric) {
			median, lo, hi = 1/median, 1/hi, 1/lo
		}
	}
	return median, lo, hi, lo > 0 && !math.IsInf(hi, 1)
}
