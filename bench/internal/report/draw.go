package report

import (
	"errors"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// Draw writes the report's charts to dir and returns their names. It leaves out
// charts for which there is too little data.
func (r *Report) Draw(dir string) (files []string, err error) {
	for _, f := range []struct {
		name string
		draw func() (*picture, error)
	}{
		{"overview", func() (*picture, error) { return r.drawDots(overview) }},
		{"rtt", func() (*picture, error) { return r.drawCurve(rttMedian) }},
		{"rtt-p99", func() (*picture, error) { return r.drawCurve(rttTail) }},
		{"latency", func() (*picture, error) { return r.drawDots(latencies) }},
		{"stream", func() (*picture, error) { return r.drawCurve(streamRate) }},
		{"stream-cpu", func() (*picture, error) { return r.drawCurve(streamCost) }},
		{"duplex", func() (*picture, error) { return r.drawCurve(duplexRate) }},
		{"cpu", func() (*picture, error) { return r.drawDots(costs) }},
		{"conns-memory", func() (*picture, error) { return r.drawCurve(connsMemory) }},
		{"conns-latency", func() (*picture, error) { return r.drawCurve(connsLatency) }},
	} {
		picture, err := f.draw()
		if err != nil {
			return nil, err
		}
		if picture == nil {
			continue
		}
		file := f.name + ".png"
		if err := picture.save(filepath.Join(dir, file)); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// A picture is a plot with its legend next to it, where it covers nothing.
type picture struct {
	plot   *plot.Plot
	legend plot.Legend
	height vg.Length
}

const (
	pictureWidth  = 20 * vg.Centimeter
	pictureHeight = 12 * vg.Centimeter
	legendWidth   = 3.6 * vg.Centimeter
	margin        = 0.3 * vg.Centimeter
	pictureDPI    = 120
)

func newPicture(title, x, y string, height vg.Length) *picture {
	p := &picture{plot: plot.New(), legend: plot.NewLegend(), height: height}
	p.plot.Title.Text = title
	p.plot.Title.Padding = 2 * vg.Millimeter
	p.plot.X.Label.Text = x
	p.plot.Y.Label.Text = y
	p.plot.X.Label.Padding = vg.Millimeter
	p.plot.Y.Label.Padding = vg.Millimeter
	p.legend.Top = true
	p.legend.Left = true
	p.legend.Padding = vg.Millimeter
	return p
}

func (p *picture) save(file string) error {
	canvas := vgimg.NewWith(vgimg.UseWH(pictureWidth, p.height), vgimg.UseDPI(pictureDPI))
	all := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	p.plot.Draw(draw.Crop(all, 0, -legendWidth, 0, 0))
	p.legend.Draw(draw.Crop(all, all.Rectangle.Size().X-legendWidth+margin, 0, 0, 0))
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(out)
	return errors.Join(err, out.Close())
}

// palette has colours that are easy to distinguish, also with most kinds of colour
// blindness (after Okabe and Ito).
var palette = []color.Color{
	color.RGBA{0x00, 0x00, 0x00, 0xff}, // black
	color.RGBA{0x80, 0x80, 0x80, 0xff}, // grey
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, // blue
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, // sky blue
	color.RGBA{0xd5, 0x5e, 0x00, 0xff}, // vermilion
	color.RGBA{0x00, 0x9e, 0x73, 0xff}, // green
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, // purple
	color.RGBA{0xe6, 0x9f, 0x00, 0xff}, // orange
	color.RGBA{0x8b, 0x45, 0x13, 0xff}, // brown
	color.RGBA{0x66, 0x00, 0x99, 0xff}, // violet
	color.RGBA{0x00, 0x00, 0x80, 0xff}, // navy
	color.RGBA{0x80, 0x80, 0x00, 0xff}, // olive
	color.RGBA{0x00, 0x80, 0x80, 0xff}, // teal
	color.RGBA{0xff, 0x69, 0xb4, 0xff}, // pink
	color.RGBA{0x99, 0xcc, 0x33, 0xff}, // lime
	color.RGBA{0x99, 0x00, 0x00, 0xff}, // maroon
	color.RGBA{0xff, 0x99, 0x99, 0xff}, // salmon
	color.RGBA{0x33, 0x33, 0x66, 0xff}, // slate
	color.RGBA{0xff, 0xd7, 0x00, 0xff}, // gold
}

// shapes distinguish contenders if their colours do not.
var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.TriangleGlyph{},
	draw.CrossGlyph{}, draw.PlusGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{},
}

// styleOf returns the style of a contender in every chart. It depends on the
// contender's position in harness.Contenders, not on which ones were measured.
func styleOf(contender string) (line draw.LineStyle, glyph draw.GlyphStyle) {
	place := slices.IndexFunc(harness.Contenders, func(c harness.Contender) bool {
		return c.Name == BaseName(contender)
	})
	colour := palette[max(place, 0)%len(palette)]
	line = draw.LineStyle{Color: colour, Width: vg.Points(1.5)}
	if strings.Contains(contender, "#") { // a repeated contender
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	glyph = draw.GlyphStyle{Color: colour, Radius: vg.Points(3), Shape: shapes[max(place, 0)%len(shapes)]}
	return line, glyph
}

// makeLogarithmic makes an axis logarithmic. It follows the data.
func makeLogarithmic(a *plot.Axis) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, decades{}
	if a.Min == a.Max { // plot would begin at 1 less, which need not be positive
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// decades labels the powers of ten on a logarithmic axis. If the axis spans few of
// them, it also labels their multiples by 2 and 5.
type decades struct{ unit string }

func (d decades) Ticks(low, high float64) (ticks []plot.Tick) {
	few := high/low < 50
	for power := 1e-9; power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			value := power * digit
			if value < low*(1-1e-9) || value > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: value}
			if digit == 1 || few && (digit == 2 || digit == 5) {
				tick.Label = number(value) + d.unit
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}
