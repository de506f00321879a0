package main

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A row is work to be timed, and what else it is good for.
type row struct {
	name  string
	buys  buys
	setup func() (work func(n int), cleanup func()) // work does n operations; several goroutines may call it
}

// buys is what a row's numbers buy. Each claim is put to the test in claims_test.go.
type buys struct {
	holder claim // knows who holds
	double claim // survives a double release
	body   claim // holds to the end of the body, or of a hijacked connection
}

type claim string

const (
	yes   claim = "yes"
	no    claim = "no"
	blank claim = "" // not its business
)

// A group is rows that are measured side by side, and compared with one of them.
type group struct {
	name string
	cpus []int  // measured on each number of CPUs by as many goroutines; none means by one goroutine
	base string // the name of the row that the others are compared with
	noGC bool   // keep the collector out, where what it walks is more than what is measured
	rows []row
}

// A timing is what came of a row. All numbers are per operation.
type timing struct {
	nanos         float64 // the lower quartile of all rounds
	bytes, allocs float64
}

// What disturbs a machine makes it slower. If it does so in half of the rounds, their median says more about that than about
// what is measured, and the lower quartile still does not. Short rounds have a chance to be left alone.
const quartile = 0.25

// A plan says how long to measure.
type plan struct {
	rounds int
	sample time.Duration // of a row in a round
}

// onCPUs is the group once for each number of CPUs.
func (g group) onCPUs() []group {
	if len(g.cpus) == 0 {
		return []group{g}
	}
	var groups []group
	for _, n := range g.cpus {
		one := g
		one.name, one.cpus = fmt.Sprintf("%s: %d", g.name, n), []int{n}
		groups = append(groups, one)
	}
	return groups
}

// measure times all rows of a group in rounds, so that what disturbs the machine for a while disturbs all of them. By name of
// the row.
func (p plan) measure(g group) map[string]timing {
	goroutines := 0
	if len(g.cpus) > 0 {
		goroutines = g.cpus[0]
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
	}
	if g.noGC {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	works := make([]func(n int), len(g.rows))
	ns := make([]int, len(g.rows))
	for i, r := range g.rows {
		work, cleanup := r.setup()
		defer cleanup()
		works[i] = spread(work, goroutines)
		ns[i] = p.calibrate(works[i])
	}
	nanos := make([][]float64, len(g.rows))
	for round := range p.rounds {
		if round%20 == 0 {
			runtime.GC()
		}
		for k := range works {
			i := (round + k) % len(works) // another one begins each round
			works[i](1 + ns[i]/4)         // warms the caches after the row before
			start := time.Now()
			works[i](ns[i])
			nanos[i] = append(nanos[i], float64(time.Since(start).Nanoseconds())/float64(ns[i]))
		}
	}
	timings := make(map[string]timing)
	for i, r := range g.rows {
		bytes, allocs := allocations(works[i])
		timings[r.name] = timing{nanos: quantile(nanos[i], quartile), bytes: bytes, allocs: allocs}
	}
	return timings
}

// calibrate finds how many operations fill a sample. It tries each number some times, or a moment in which the machine does
// something else would pass for a long operation.
func (p plan) calibrate(work func(n int)) int {
	for n := 1; ; n *= 2 {
		took := p.sample
		for range 5 {
			start := time.Now()
			work(n)
			took = min(took, time.Since(start))
		}
		if took >= p.sample/4 {
			return max(1, int(float64(n)*float64(p.sample)/float64(took)))
		}
	}
}

// spread has as many goroutines share the work.
func spread(work func(n int), goroutines int) func(n int) {
	if goroutines == 0 {
		return work
	}
	return func(n int) {
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() { work(n*(i+1)/goroutines - n*i/goroutines) })
		}
		wg.Wait()
	}
}

func allocations(work func(n int)) (bytes, allocs float64) {
	const n = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work(n)
	runtime.ReadMemStats(&after)
	per := func(before, after uint64) float64 { return math.Round(float64(after-before) / n) }
	return per(before.TotalAlloc, after.TotalAlloc), per(before.Mallocs, after.Mallocs)
}

func quantile[T float64 | time.Duration](values []T, p float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(p*float64(len(sorted)))]
}
