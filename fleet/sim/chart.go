package main

import (
	"bytes"
	"image/color"
	"math"
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
	chartWidth  = 24 * vg.Centimeter
	panelHeight = 4.6 * vg.Centimeter
	margin      = vg.Length(12)
)

// drawChart draws a panel for each fault, one below the other, and writes them to a file of the kind that its name says.
func drawChart(courses []course, file string) error {
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	canvas, err := draw.NewFormattedCanvas(chartWidth, panelHeight*vg.Length(len(courses)), format)
	if err != nil {
		return err
	}
	var panels [][]*plot.Plot
	for i := range courses {
		p, err := panel(&courses[i], i == len(courses)-1)
		if err != nil {
			return err
		}
		panels = append(panels, []*plot.Plot{p})
	}
	tiles := draw.Tiles{
		Rows: len(panels), Cols: 1, PadY: vg.Points(10),
		PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin,
	}
	for i, canvases := range plot.Align(panels, tiles, draw.New(canvas)) {
		panels[i][0].Draw(canvases[0])
	}
	var encoded bytes.Buffer
	if _, err := canvas.WriteTo(&encoded); err != nil {
		return err
	}
	return os.WriteFile(file, encoded.Bytes(), 0o644) //nolint:gosec // it is for all to read
}

// panel draws what was in use, by the limit. While the fault lasts the ground is grey.
func panel(c *course, last bool) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = strings.ToUpper(c.fault.name[:1]) + c.fault.name[1:]
	p.Y.Label.Text = "in use, %"
	if last {
		p.X.Label.Text = "seconds after the fault"
	}
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		style.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(10)}
	}
	p.Title.Padding = vg.Points(4)
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(10), ticks(50)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -lead.Seconds(), lag.Seconds(), 0, 125

	ends := max(c.fault.lasts.Seconds(), 0.3)
	ground, err := plotter.NewPolygon(plotter.XYs{{X: 0, Y: 0}, {X: ends, Y: 0}, {X: ends, Y: p.Y.Max}, {X: 0, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	ground.Color, ground.Width = color.Gray{Y: 0xe4}, 0
	if c.fault.lasts == 0 {
		ground.Color = color.Gray{Y: 0x90}
	}
	var xys plotter.XYs
	for i, used := range c.used {
		xys = append(xys, plotter.XY{X: (time.Duration(i)*step - lead).Seconds(), Y: 100 * used})
	}
	line, err := plotter.NewLine(xys)
	if err != nil {
		return nil, err
	}
	line.StepStyle, line.Color, line.Width = plotter.PostStep, color.RGBA{G: 0x72, B: 0xb2, A: 0xff}, vg.Points(1.6)
	limit := plotter.NewFunction(func(float64) float64 { return 100 })
	limit.Width, limit.Dashes = vg.Points(1), []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(ground, limit, line)
	return p, nil
}

// ticks are at the multiples of a step.
func ticks(step float64) plot.TickerFunc {
	return func(low, high float64) []plot.Tick {
		var at []plot.Tick
		for x := step * math.Ceil(low/step); x <= high; x += step {
			at = append(at, plot.Tick{Value: x, Label: strconv.Itoa(int(x))})
		}
		return at
	}
}
