package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	chartWidth, chartHeight = 24 * vg.Centimeter, 12 * vg.Centimeter

	stretches = 900 // of time, across the chart: more cannot be told apart
)

// drawChart draws what was in flight over time, a line per design and one for the limit, and writes it to a file of the
// kind that its name says.
func drawChart(outcomes []outcome, limit int, file string) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "minutes", "requests in flight"
	for _, style := range []*text.Style{
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(11)}
	}
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(6), vg.Points(6)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(wholeTicks), plot.TickerFunc(wholeTicks)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)

	until, peak := time.Duration(0), limit
	for _, o := range outcomes {
		until, peak = max(until, o.course[len(o.course)-1].at), max(peak, o.peak) // each design lets in the first request
	}
	colors := []color.Color{ // in the order of the designs; the colour-blind too can tell them apart
		color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, color.RGBA{R: 0xb4, G: 0xb4, B: 0xb4, A: 0xff}, color.RGBA{G: 0x72, B: 0xb2, A: 0xff},
	}
	for i, o := range outcomes {
		line, err := plotter.NewLine(outline(o.course, until))
		if err != nil {
			return err
		}
		line.StepStyle, line.Color, line.Width = plotter.PostStep, colors[i], vg.Points(1.6)
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s: up to %d", o.design, o.peak), line)
	}
	bound := plotter.NewFunction(func(float64) float64 { return float64(limit) })
	bound.Width, bound.Dashes = vg.Points(1), []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(bound)
	p.Legend.Add("the limit: "+strconv.Itoa(limit), bound)
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(8)
	p.Legend.Padding, p.Legend.ThumbnailWidth = vg.Points(3), vg.Points(24)
	p.Y.Min, p.Y.Max = 0, 1.35*float64(peak) // the legend is above the lines
	return save(p, file)
}

// save writes the chart, with a margin, for the axis ends at the very edge.
func save(p *plot.Plot, file string) error {
	canvas, err := draw.NewFormattedCanvas(chartWidth, chartHeight, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return err
	}
	const margin = vg.Length(12)
	p.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	var encoded bytes.Buffer
	if _, err := canvas.WriteTo(&encoded); err != nil {
		return err
	}
	return os.WriteFile(file, encoded.Bytes(), 0o644)
}

// outline keeps, of each short stretch of time, the most that was in flight.
func outline(course []point, until time.Duration) plotter.XYs {
	stretch := max(1, until/stretches)
	var xys plotter.XYs
	inFlight := 0
	for at := time.Duration(0); at <= until; at += stretch {
		most := inFlight
		for ; len(course) > 0 && course[0].at < at+stretch; course = course[1:] {
			inFlight = course[0].inFlight
			most = max(most, inFlight)
		}
		xys = append(xys, plotter.XY{X: at.Minutes(), Y: float64(most)})
	}
	return xys
}

// wholeTicks are at round numbers, which are whole unless the axis is shorter than that, and without decimal zeros.
func wholeTicks(low, high float64) []plot.Tick {
	step := 1.0
	for i := 0; (high-low)/step > 10; i++ {
		step *= []float64{2, 2.5, 2}[i%3] // 1, 2, 5, 10, 20, 50, ...
	}
	var ticks []plot.Tick
	for at := 0.0; at <= high; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'f', -1, 64)})
	}
	return ticks
}
