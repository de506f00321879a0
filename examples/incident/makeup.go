package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The incident: streams with a 90th percentile of 274 s and a maximum of 880 s, and more of them than the limit let in. The
// median was not recorded; with this one, 2 in 1,000 requests run into the maximum.
const (
	median  = 107 * time.Second
	p90     = 274 * time.Second
	longest = 880 * time.Second
	span    = time.Hour

	maxDemand = 10_000.0
)

// makeUp makes requests that arrive at random, evenly over the span. How long they last is log-normal, cut off at the
// longest. The durations are quantiles in random order, not random draws, so any seed has the incident's percentiles.
func makeUp(demand float64, firstToken time.Duration, seed uint64) []request {
	const grid = 10_000
	var mean time.Duration
	for i := range grid {
		mean += quantile((float64(i)+0.5)/grid) / grid
	}
	n := max(1, int(math.Round(demand*span.Seconds()/mean.Seconds())))

	random := rand.New(rand.NewPCG(seed, 0))
	arrivals := make([]time.Duration, n)
	for i := range arrivals {
		arrivals[i] = time.Duration(random.Int64N(int64(span)))
	}
	slices.Sort(arrivals)
	requests := make([]request, n)
	for i, rank := range random.Perm(n) {
		at := arrivals[i] - arrivals[0]
		lasts := max(firstToken, quantile((float64(rank)+0.5)/float64(n)))
		requests[i] = request{at: at, head: at + firstToken, end: at + lasts}
	}
	return requests
}

// quantile is the duration that a share p of the requests stays below.
func quantile(p float64) time.Duration {
	z := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) } // of the standard normal distribution
	sigma := math.Log(p90.Seconds()/median.Seconds()) / z(0.9)
	return min(longest, time.Duration(float64(median)*math.Exp(sigma*z(p))))
}
