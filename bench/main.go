// Command bench measures inflight side by side with peers that do part of its work, in one run on one machine, so that
// what counts are the ratios. It prints what it measured in markdown; with -o it puts that into a file instead, between two
// markers. docs/benchmarks.md says what the rows mean.
//
//	go run ./bench
//	go run ./bench -o docs/benchmarks.md -chart docs/benchmarks.png
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

func main() {
	var p plan
	flag.IntVar(&p.rounds, "rounds", 201, "how often to measure each row")
	flag.DurationVar(&p.sample, "sample", 3*time.Millisecond, "how long to measure a row in each round")
	var to output
	flag.StringVar(&to.page, "o", "", "put the result into this `file`, between its markers, instead of printing it")
	flag.StringVar(&to.chart, "chart", "", "draw a chart of what it costs to take a slot to this `file`, .png or .svg")
	flag.Parse()
	if err := run(p, to, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// output is where the result goes.
type output struct{ page, chart string }

func run(p plan, to output, args []string) error {
	if p.rounds < 1 || p.sample < time.Microsecond || len(args) > 0 {
		return errors.New("-rounds must be at least 1, -sample at least 1µs, and nothing else is taken")
	}
	if to.chart != "" && filepath.Ext(to.chart) != ".png" && filepath.Ext(to.chart) != ".svg" {
		return fmt.Errorf("-chart is %q, must end in .png or .svg", to.chart)
	}
	var page string
	if to.page != "" {
		content, err := os.ReadFile(to.page)
		if err != nil {
			return err
		}
		if page = string(content); !strings.Contains(page, begin) || !strings.Contains(page, end) {
			return fmt.Errorf("%s has no lines %q and %q to put the result between", to.page, begin, end)
		}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // a heap of a few MB, which no server has, is collected nearly all the time
	}
	result, timings := p.report()
	var err error
	if to.page != "" {
		err = os.WriteFile(to.page, []byte(between(page, result)), 0o644)
	} else {
		_, err = fmt.Print(result)
	}
	if to.chart != "" {
		err = errors.Join(err, drawChart(acquireGroups()[0], timings[acquireGroup], to.chart))
	}
	return err
}

// What lies between these lines of a file is the program's.
const (
	begin = "<!-- measured: begin -->\n"
	end   = "<!-- measured: end -->\n"
)

// between puts the result between the markers of the page.
func between(page, result string) string {
	before, rest, _ := strings.Cut(page, begin)
	_, after, _ := strings.Cut(rest, end)
	return before + begin + "\n" + result + "\n" + end + after
}
