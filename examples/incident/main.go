// Command incident replays an hour of traffic against three ways to keep a customer at no more than so many requests in
// flight, and shows what each of them let in: a counter in a cache with a time-to-live, a slot that is given back at the
// response head, and inflight. The hour passes in fake time, so it takes a second.
//
//	go run ./examples/incident                                    # traffic with the shape of the incident
//	go run ./examples/incident -trace FILE -chart incident.svg    # recorded traffic, see README.md
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type config struct {
	trace           string
	tokensPerSecond float64
	firstToken      time.Duration
	limit           int
	demand          float64
	seed            uint64
	chart           string
}

func main() {
	cfg, err := parse(os.Args[1:])
	if err == nil {
		err = run(cfg, os.Stdout, inFakeTime)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "incident:", err)
		os.Exit(1)
	}
}

// parse reads the command line. As the flag package does, it ends the program if that asks for help or is no command line.
func parse(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("incident", flag.ExitOnError)
	flags.StringVar(&cfg.trace, "trace", "", "replay this CSV `file` with the columns "+columns+"; without it traffic is made up")
	flags.Float64Var(&cfg.tokensPerSecond, "tokens-per-second", 10, "how fast each request of a trace generates")
	flags.DurationVar(&cfg.firstToken, "first-token", 200*time.Millisecond, "how long after a request its response head comes")
	flags.IntVar(&cfg.limit, "limit", 64, "how many requests may be in flight")
	flags.Float64Var(&cfg.demand, "demand", 100, "how many made-up requests would be in flight on average without a limit")
	flags.Uint64Var(&cfg.seed, "seed", 1, "makes up the same traffic each time")
	flags.StringVar(&cfg.chart, "chart", "", "draw what was in flight over time to this `file`, as its name says: .svg or .png")
	_ = flags.Parse(args) // it exits if it fails
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	unused := map[string]string{"demand": "traffic without -trace", "seed": "traffic without -trace"}
	if cfg.trace == "" {
		unused = map[string]string{"tokens-per-second": "a -trace"}
	}
	var err error
	flags.Visit(func(f *flag.Flag) {
		if what, ok := unused[f.Name]; ok {
			err = fmt.Errorf("-%s is for %s", f.Name, what)
		}
	})
	return cfg, errors.Join(err, cfg.validate())
}

func (c config) validate() error {
	switch extension := filepath.Ext(c.chart); {
	case !(c.tokensPerSecond > 0) || math.IsInf(c.tokensPerSecond, 0):
		return fmt.Errorf("-tokens-per-second is %v, must be above 0", c.tokensPerSecond)
	case c.firstToken < 0 || c.firstToken > maxTime:
		return fmt.Errorf("-first-token is %v, must be 0 to %v", c.firstToken, maxTime)
	case c.limit < 1:
		return fmt.Errorf("-limit is %d, must be at least 1", c.limit)
	case !(c.demand > 0 && c.demand <= maxDemand):
		return fmt.Errorf("-demand is %v, must be above 0 and at most %v", c.demand, maxDemand)
	case c.chart != "" && extension != ".svg" && extension != ".png":
		return fmt.Errorf("-chart is %q, must end in .svg or .png", c.chart)
	}
	return nil
}

// run replays the traffic and prints a table of what came of it, and draws a chart if there shall be one.
func run(cfg config, out io.Writer, fakeTime func(func())) error {
	requests, source, err := cfg.traffic()
	if err != nil {
		return err
	}
	var outcomes []outcome
	fakeTime(func() { outcomes, err = replayAll(requests, cfg.limit) })
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s\nlimit %d, response head after %v\n\n%s", source, cfg.limit, cfg.firstToken, table(outcomes)); err != nil {
		return err
	}
	if cfg.chart == "" {
		return nil
	}
	return drawChart(outcomes, cfg.limit, cfg.chart)
}

// table is markdown.
func table(outcomes []outcome) string {
	const row = "| %-36s | %8v | %7v | %14v | %23v |\n"
	var b strings.Builder
	fmt.Fprintf(&b, row, "design", "admitted", "refused", "peak in flight", "seconds above the limit")
	fmt.Fprintf(&b, row, "---", "---:", "---:", "---:", "---:")
	for _, o := range outcomes {
		fmt.Fprintf(&b, row, o.design, o.admitted, o.refused, o.peak, strconv.FormatFloat(o.above.Seconds(), 'f', 1, 64))
	}
	return b.String()
}

// traffic also says in a line where it is from.
func (c config) traffic() ([]request, string, error) {
	if c.trace == "" {
		requests := makeUp(c.demand, c.firstToken, c.seed)
		return requests, fmt.Sprintf("%d made-up requests in %v, seed %d: they last %.0f s at the median, %.0f s at p90, at most "+
			"%.0f s; without a limit %v would be in flight on average", len(requests), span, c.seed, median.Seconds(), p90.Seconds(),
			longest.Seconds(), c.demand), nil
	}
	file, err := os.Open(c.trace)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = file.Close() }()
	requests, err := readTrace(file, c.tokensPerSecond, c.firstToken)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", c.trace, err)
	}
	return requests, fmt.Sprintf("%d requests in %v from %s, at %v tokens per second", len(requests),
		requests[len(requests)-1].at.Round(time.Second), filepath.Base(c.trace), c.tokensPerSecond), nil
}
