// Command sim simulates a fleet of hundreds of processes: the code of package fleet, on a model of its engine, in virtual
// time. It prints in markdown how much the processes call the engine, how well and how fairly they use the limits, and how
// they get over faults, beside two other ways to keep limits over many processes; with -o it puts that into a file instead,
// between two markers. docs/fleet.md says what the columns mean.
//
//	go run ./fleet/sim
//	go run ./fleet/sim -o docs/fleet.md -chart docs/fleet.png
//
// The requests are the same for the same seed: when they come, to which process, for which key, and how long they take.
// When a process calls is not, since package fleet draws that at random; from run to run the numbers differ a little.
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
	p := plan{net: network{}}
	flag.IntVar(&p.processes, "processes", 300, "how many there are; the limits grow with them")
	flag.Uint64Var(&p.seed, "seed", 1, "makes up the same requests each time")
	flag.DurationVar(&p.net.trip, "trip", time.Millisecond, "how long a call takes on average")
	flag.Float64Var(&p.net.loss, "loss", 0.001, "the part of all calls that is lost")
	flag.DurationVar(&p.warm, "warm", 15*time.Second, "how long to run a fleet before looking at it")
	flag.DurationVar(&p.span, "span", 15*time.Second, "how long to measure")
	var to output
	flag.StringVar(&to.page, "o", "", "put the result into this `file`, between its markers, instead of printing it")
	flag.StringVar(&to.chart, "chart", "", "draw how the fleet gets over faults to this `file`, .png or .svg")
	flag.Parse()
	if err := run(p, to, flag.Args(), inVirtualTime); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

// output is where the result goes.
type output struct{ page, chart string }

// run simulates in the time that inVirtualTime gives it.
func run(p plan, to output, args []string, inVirtualTime func(func())) error {
	if err := p.check(args); err != nil {
		return err
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
		debug.SetGCPercent(400)
	}
	var result string
	var courses []course
	start := time.Now()
	inVirtualTime(func() { result, courses = p.run() })
	result = p.environment(time.Since(start)) + "\n\n" + result
	var err error
	if to.page != "" {
		err = os.WriteFile(to.page, []byte(between(page, result)), 0o644) //nolint:gosec // it is for all to read
	} else {
		_, err = fmt.Fprint(os.Stdout, result)
	}
	if to.chart != "" {
		err = errors.Join(err, drawChart(courses, to.chart))
	}
	return err
}

func (p *plan) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case p.processes < 10:
		return fmt.Errorf("-processes is %d, must be at least 10, for a tenth of them is hit by faults", p.processes)
	case p.net.trip < time.Microsecond || p.net.trip > 100*time.Millisecond:
		return fmt.Errorf("-trip is %v, must be from 1µs to 100ms", p.net.trip)
	case p.net.loss < 0 || p.net.loss > 1:
		return fmt.Errorf("-loss is %v, must be from 0 to 1", p.net.loss)
	case p.warm < 0 || p.span < time.Second:
		return errors.New("-warm must not be negative, and -span at least 1s")
	}
	return nil
}

// What lies between these lines of a file is the program's.
const (
	begin = "<!-- sim:begin -->\n"
	end   = "<!-- sim:end -->\n"
)

// between puts the result between the markers of the page.
func between(page, result string) string {
	before, rest, _ := strings.Cut(page, begin)
	_, after, _ := strings.Cut(rest, end)
	return before + begin + "\n" + result + "\n" + end + after
}
