package report

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// A curve plots a metric against the size of messages or the number of connections.
type curve struct {
	title, y string
	kind     harness.Kind
	metric   string
	overConn bool
}

var (
	rttMedian    = curve{"Round trip, median", "µs", harness.RTT, harness.P50, false}
	rttTail      = curve{"Round trip, 99th percentile", "µs", harness.RTT, harness.P99, false}
	streamRate   = curve{"One stream, one Write per message", "bytes/s", harness.Stream, harness.BytesPerS, false}
	streamCost   = curve{"One stream, processor time of both processes", "s/GB", harness.Stream, harness.CPUPerGB, false}
	duplexRate   = curve{"Both ways at once, both directions together", "bytes/s", harness.Duplex, harness.BytesPerS, false}
	connsMemory  = curve{"Idle connections, resident memory per connection and side", "bytes", harness.Conns, harness.RSS, true}
	connsLatency = curve{"Round trips of 64 bytes on 1 % of the connections, 99th percentile", "µs", harness.ConnsBusy, harness.P99, true}
)

// drawCurve returns nil if there are fewer than two points on the x axis.
func (r *Report) drawCurve(c curve) (*picture, error) {
	x, label := "bytes in a message", func(v int) string { return harness.SizeName(v) }
	if c.overConn {
		x, label = "connections", strconv.Itoa
	}
	p := newPicture(c.title, x, c.y, pictureHeight)
	places := map[int]bool{}
	for _, contender := range r.contenders() {
		var points spreads
		for _, row := range r.Rows {
			if row.Case != c.kind || row.Metric != c.metric || row.Contender != contender || row.Distance != All || row.Lo <= 0 {
				continue
			}
			place := row.Size
			if c.overConn {
				place = row.Conns
			}
			places[place] = true
			points.add(float64(place), row.Median, row.Lo, row.Hi)
		}
		if len(points.XYs) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points.XYs)
		if err != nil {
			return nil, err
		}
		bars, err := plotter.NewYErrorBars(points)
		if err != nil {
			return nil, err
		}
		line.LineStyle, dots.GlyphStyle = styleOf(contender)
		bars.LineStyle = line.LineStyle
		bars.LineStyle.Width = vg.Points(0.7)
		bars.LineStyle.Dashes = nil
		p.plot.Add(bars, line, dots)
		p.legend.Add(contender, line, dots)
	}
	if len(places) < 2 {
		return nil, nil
	}
	var ticks plot.ConstantTicks
	for place := range places {
		ticks = append(ticks, plot.Tick{Value: float64(place), Label: label(place)})
	}
	slices.SortFunc(ticks, func(a, b plot.Tick) int { return int(math.Copysign(1, a.Value-b.Value)) })
	p.plot.X.Scale, p.plot.X.Tick.Marker = plot.LogScale{}, ticks
	makeLogarithmic(&p.plot.Y)
	p.plot.Add(plotter.NewGrid())
	return p, nil
}

// spreads are points with error bars.
type spreads struct {
	plotter.XYs
	plotter.YErrors
	plotter.XErrors
}

// add adds a point with an error bar along y.
func (s *spreads) add(x, y, lo, hi float64) {
	s.XYs = append(s.XYs, plotter.XY{X: x, Y: y})
	s.YErrors = append(s.YErrors, struct{ Low, High float64 }{y - lo, hi - y})
}

// addAcross adds a point with an error bar along x.
func (s *spreads) addAcross(x, y, lo, hi float64) {
	s.XYs = append(s.XYs, plotter.XY{X: x, Y: y})
	s.XErrors = append(s.XErrors, struct{ Low, High float64 }{x - lo, hi - x})
}
