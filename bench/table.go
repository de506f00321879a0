package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A line of the table. What is empty does not apply.
type line struct {
	name, time, bytes, allocs, compared string
	buys                                buys
}

var columns = []string{
	"", "time", "B", "allocations", "compared", "knows the holder", "survives a double release", "holds to the body's end",
}

// table renders lines in markdown.
func table(lines []line) string {
	var b strings.Builder
	write := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	write(columns...)
	write("---", "---:", "---:", "---:", "---", "---", "---", "---")
	for _, l := range lines {
		write(l.name, l.time, l.bytes, l.allocs, l.compared, string(l.buys.holder), string(l.buys.double), string(l.buys.body))
	}
	return b.String()
}

// title begins a group.
func title(name string) line { return line{name: "**" + name + "**"} }

// line shows a row's timing beside that of the base of its group.
func (r row) line(t timing, base string, ofBase timing) line {
	l := line{
		name: r.name, time: duration(t.nanos), bytes: number(t.bytes), allocs: number(t.allocs), buys: r.buys,
		compared: factor(t.nanos/ofBase.nanos) + " × " + base,
	}
	if r.name == base {
		l.compared = "1"
	}
	return l
}

// duration shows nanoseconds with three digits at most.
func duration(nanos float64) string {
	units := []string{"ns", "µs", "ms", "s"}
	i := 0
	for ; nanos >= 999.5 && i < len(units)-1; i++ {
		nanos /= 1000
	}
	return number(nanos) + " " + units[i]
}

// number shows three digits at most, but no fewer than the number has before the point, with commas.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95 || v == math.Trunc(v):
		return grouped(int(math.Round(v)))
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// grouped shows a number with commas.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

func factor(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// A goal is what was set out to be reached.
type goal struct {
	name     string
	got, max float64
	show     func(float64) string
}

func (g goal) line() string {
	verdict := "reached"
	if g.got > g.max {
		verdict = "**missed**"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", g.name, g.show(g.max), g.show(g.got), verdict)
}

func goalTable(goals []goal) string {
	var b strings.Builder
	b.WriteString("| goal | at most | measured | |\n| --- | ---: | ---: | --- |\n")
	for _, g := range goals {
		b.WriteString(g.line())
	}
	return b.String()
}
