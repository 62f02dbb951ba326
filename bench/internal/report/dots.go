package report

import (
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// dots compares one number in several cases: one line per case, one dot per
// contender.
type dots struct {
	title, x string
	rows     []dotRow
	gains    bool // plot the ratio to the baseline, inverted if necessary so that more is better
}

type dotRow struct {
	kind   harness.Kind
	size   int
	conns  int
	metric string
}

// smallerIsBetter reports whether smaller values of a metric are better.
func smallerIsBetter(metric string) bool {
	switch metric {
	case harness.BytesPerS, harness.MsgsPerS, harness.ReqPerS:
		return false
	}
	return true
}

var overview = dots{
	title: "Speed relative to TCP: ratio of rates, or TCP's time divided by the contender's",
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
	title: "Time of one operation",
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
	x:     "µs per operation",
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

// drawDots returns nil if none of its rows was measured.
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
			// The first case is at the top, and the first contender is at the top of it.
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
		bars.LineStyle, scatter.GlyphStyle = styleOf(contender)
		bars.LineStyle.Dashes = nil
		p.plot.Add(bars, scatter)
		p.legend.Add(contender, scatter)
	}
	var names []plot.Tick
	for k, row := range rows {
		names = append(names, plot.Tick{Value: float64(len(rows) - 1 - k), Label: row.name()})
	}
	makeLogarithmic(&p.plot.X)
	p.plot.Y.Tick.Marker = plot.ConstantTicks(names)
	p.plot.Y.Tick.Length = 0
	p.plot.Y.Min, p.plot.Y.Max = -0.6, float64(len(rows))-0.4
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.plot.Add(grid)
	for k := range len(rows) - 1 { // a line between cases
		between, err := plotter.NewLine(plotter.XYs{{X: p.plot.X.Min, Y: float64(k) + 0.5}, {X: p.plot.X.Max, Y: float64(k) + 0.5}})
		if err != nil {
			return nil, err
		}
		between.LineStyle = grid.Vertical
		p.plot.Add(between)
	}
	return p, nil
}

// name returns the case and the metric as a label.
func (d dotRow) name() string {
	c := harness.Case{Kind: d.kind, Size: d.size, Conns: d.conns}
	metric := strings.TrimSuffix(d.metric, "_per_s")
	if d.metric == harness.CPUPerMReq {
		return c.Name()
	}
	return c.Name() + " " + metric
}

// dot returns the position and the error bar of a contender's dot.
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
		if smallerIsBetter(of.metric) {
			median, lo, hi = 1/median, 1/hi, 1/lo
		}
	}
	return median, lo, hi, lo > 0 && !math.IsInf(hi, 1)
}
