// Command worker runs jobs on a GPU whose memory is the limit. Workers pull jobs from a channel and acquire the memory
// that each needs, so the weight of a slot is its GiB. It shows fair order: a big job that waits is not overtaken by small
// ones behind it. And it shows back-pressure: while all workers wait, nobody pulls, and whoever sends jobs is held back.
//
//	go run ./examples/worker
//	go run ./examples/worker -redis redis://127.0.0.1:6379 # the GPU is shared with all who run this
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

const (
	workers  = 3
	patience = 500 * time.Millisecond  // of a job that waits for memory
	shift    = 1150 * time.Millisecond // after which no job begins; those that run may end
)

// limits are in GiB: what one customer may use, and what there is.
var limits = inflight.Limits{Key: 3, Total: 4}

// A job needs memory for a while. The other fields are what came of it.
type job struct {
	customer string
	gib      int
	takes    time.Duration

	heldBack time.Duration // until a worker pulled it
	waited   time.Duration // until it had its memory, or had not
	slot     uint64        // 0 if it did not run; slots are numbered in the order of their grants
	err      error
}

func main() {
	url := flag.String("redis", "", "`URL` of the Redis that keeps the limits of all who run this; without it this is the only one")
	processes := flag.Int("processes", 1, "how many run this: while Redis has no data, each has its part of the GPU")
	flag.Parse()
	if err := run(context.Background(), *url, *processes, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, processes int, out io.Writer) error {
	reg, err := inflight.New(inflight.Config{Name: "gpu", Limits: inflight.Fixed(limits)})
	if err != nil {
		return err
	}
	if url == "" {
		return errors.Join(workShift(ctx, reg, reg, out), reg.Shutdown(ctx))
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return errors.Join(err, reg.Close())
	}
	options.MaxRetries, options.ContextTimeoutEnabled = -1, true // a call that is late is worth nothing
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	gpu, err := fleet.New(ctx, client, reg, fleet.Config{Processes: processes})
	if err != nil {
		return errors.Join(err, reg.Close())
	}
	return errors.Join(workShift(ctx, reg, gpu, out), gpu.Close(ctx))
}

// workShift sends jobs to workers who need the GPU, and says what came of them.
func workShift(ctx context.Context, reg *inflight.Registry, gpu inflight.Acquirer, out io.Writer) error {
	jobs := []*job{
		{customer: "acme", gib: 3, takes: 400 * time.Millisecond},
		{customer: "zebra", gib: 2, takes: 600 * time.Millisecond}, // does not fit beside the first
		{customer: "nadir", gib: 1, takes: 200 * time.Millisecond}, // would fit, but came later
		{customer: "acme", gib: 3, takes: 400 * time.Millisecond},  // finds all workers busy
		{customer: "acme", gib: 1, takes: 300 * time.Millisecond},
		{customer: "nadir", gib: 4, takes: 100 * time.Millisecond}, // more than a customer may use: no wait could help
		{customer: "zebra", gib: 1, takes: 300 * time.Millisecond},
		{customer: "nadir", gib: 3, takes: 100 * time.Millisecond}, // still waits when the shift is over
	}

	open, end := context.WithTimeout(ctx, shift)
	defer end()
	queue := make(chan *job) // without a buffer: what waits does so where it can be seen
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { work(open, gpu, queue) })
	}
	for _, j := range jobs {
		sent := time.Now()
		queue <- j
		j.heldBack = time.Since(sent)
		time.Sleep(50 * time.Millisecond)
	}
	close(queue)
	all.Wait()
	return report(out, jobs, reg.Stats())
}

// work runs jobs, one after the other, until there are no more.
func work(ctx context.Context, gpu inflight.Acquirer, queue <-chan *job) {
	for j := range queue {
		asked := time.Now()
		slot, err := gpu.Acquire(ctx, inflight.Key{Org: j.customer, Model: "gpu"},
			inflight.Weight(j.gib), inflight.MaxWait(patience))
		j.waited = time.Since(asked)
		if err != nil {
			j.err = err
			continue
		}
		j.slot = slot.ID()
		compute(slot, j.takes)
	}
}

// compute is the work itself. However it ends, the memory is given back.
func compute(slot *inflight.Slot, d time.Duration) {
	defer slot.Release()
	time.Sleep(d)
}

func report(out io.Writer, jobs []*job, s inflight.Stats) error {
	var text strings.Builder
	fmt.Fprintln(&text, "job\tcustomer\tGiB\theld back\twaited\toutcome")
	for i, j := range jobs {
		fmt.Fprintf(&text, "%d\t%s\t%d\t%v\t%v\t%s\n", i+1, j.customer, j.gib, round(j.heldBack), round(j.waited), j.outcome())
	}
	fmt.Fprintf(&text, "\n%d of %d jobs ran, with at most %d of %d GiB in use\n",
		s.Admitted, len(jobs), s.PeakInUse, limits.Total)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, text.String()); err != nil {
		return err
	}
	return table.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(50 * time.Millisecond) }

// outcome tells apart what a caller may want to: too big for ever, too long a wait, and no more time.
func (j *job) outcome() string {
	var full *inflight.LimitError
	switch {
	case j.err == nil:
		return fmt.Sprintf("ran, with slot %d", j.slot)
	case errors.As(j.err, &full) && full.Weight > full.Limit:
		return fmt.Sprintf("refused: above the %v limit of %d", full.Scope, full.Limit)
	case errors.Is(j.err, inflight.ErrLimit):
		return "gave up"
	case errors.Is(j.err, context.DeadlineExceeded):
		return "the shift was over"
	}
	return j.err.Error()
}
