package main

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// drawChart draws a bar for each row of a group and writes it to a file of the kind that its name says.
func drawChart(g group, timings map[string]timing, file string) error {
	p := plot.New()
	p.Title.Text = "Nanoseconds to take a slot and give it back; blue knows who holds, and survives a double release"
	p.Title.Padding = vg.Points(8)
	p.Title.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(11)}
	p.Y.Tick.Label.Font = p.Title.TextStyle.Font
	p.Y.Label.Text = " " // a margin
	p.HideX()

	rows := slices.Clone(g.rows)
	slices.Reverse(rows) // the first is at the top
	var names []string
	var labels plotter.XYLabels
	for i, r := range rows {
		names = append(names, r.name)
		labels.XYs = append(labels.XYs, plotter.XY{X: timings[r.name].nanos, Y: float64(i)})
		labels.Labels = append(labels.Labels, " "+number(timings[r.name].nanos))
		bar, err := plotter.NewBarChart(plotter.Values{timings[r.name].nanos}, vg.Points(14))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(i), 0
		bar.Color = color.RGBA{R: 0xb4, G: 0xb4, B: 0xb4, A: 0xff}
		if r.buys.holder == yes && r.buys.double == yes {
			bar.Color = color.RGBA{G: 0x72, B: 0xb2, A: 0xff}
		}
		p.Add(bar)
	}
	values, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range values.TextStyle {
		values.TextStyle[i].Font, values.TextStyle[i].YAlign = p.Title.TextStyle.Font, text.YCenter
	}
	p.Add(values)
	p.NominalY(names...)
	p.X.Max *= 1.08 // room for the last label
	return p.Save(24*vg.Centimeter, vg.Length(len(rows))*vg.Points(22)+vg.Points(80), file)
}
