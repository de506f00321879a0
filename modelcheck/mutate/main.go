// Command mutate checks the tests: it puts one fault after another into the library and expects that a test fails.
//
//	go run ./modelcheck/mutate              # all that is in faults.txt
//	go run ./modelcheck/mutate -only slot   # those whose file or name match
//
// The tree is not touched: the compiler gets the changed file by -overlay. The exit code is 1 if a fault got past all
// tests, or does not fit the code any more.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"sync"
)

//go:embed faults.txt
var list string

func main() {
	only := flag.String("only", "", "only faults whose file or name match this regular `expression`")
	parallel := flag.Int("j", 2, "how many to try at the same `time`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only, *parallel, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, parallel int, out io.Writer) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	faults, err := parse(list)
	if err != nil {
		return err
	}
	faults = slices.DeleteFunc(faults, func(f fault) bool { return !pattern.MatchString(f.String()) })
	t, err := newTester(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	if caught, err := t.try(ctx, "", ladder()[0]); err != nil || caught != "" {
		return errors.Join(fmt.Errorf("mutate: without a fault the tests must pass: %s", caught), err)
	}

	var mu sync.Mutex
	var wrong []error
	var all sync.WaitGroup
	turns := make(chan struct{}, max(parallel, 1))
	for _, f := range faults {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			caught, err := t.judge(ctx, f)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				caught = err.Error()
				wrong = append(wrong, fmt.Errorf("%v: %w", f, err))
			}
			_, _ = fmt.Fprintf(out, "%v: %s\n", f, caught)
		})
	}
	all.Wait()
	_, _ = fmt.Fprintf(out, "\n%d faults, %d caught\n", len(faults), len(faults)-len(wrong))
	return errors.Join(wrong...)
}
