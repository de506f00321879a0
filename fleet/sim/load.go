package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A load is what is asked of a fleet.
type load struct {
	name string
	keys int
	hold time.Duration // of a request, on average; exponential
	wait time.Duration // how long a request waits for room

	limit  int     // of each key
	demand float64 // what would be in flight if there were no limits, by the sum of the limits

	// With zipf in place of limit, keys are used by Zipf's law, so much would be in flight over all of them if there were
	// no limits, and each has the limit that suits its use.
	zipf float64

	skewed bool // a tenth of the processes get nine tenths of the requests
	phases bool // a process is busy half of the time, and gets a fifth of that in the other half
}

const (
	exponent = 1.1 // of Zipf's law
	floor    = 8   // the least of the limits by Zipf's law
	phase    = 20 * time.Second
)

// loads are those of the first table.
func loads() []load {
	const second = time.Second
	return []load{
		{name: "half used", keys: 1, limit: 3000, demand: 0.5, hold: second},
		{
			name: "90 % used, by a tenth of the processes nearly alone",
			keys: 1, limit: 3000, demand: 0.9, hold: second, skewed: true,
		},
		{name: "half more than the limit", keys: 1, limit: 3000, demand: 1.5, hold: second},
		{name: "the same, and requests wait up to 1 s", keys: 1, limit: 3000, demand: 1.5, hold: second, wait: second},
		{name: "half used", keys: 20, limit: 300, demand: 0.5, hold: second},
		{name: "half used", keys: 1, limit: 24, demand: 0.5, hold: second},
		{name: "half more than the limit", keys: 1, limit: 24, demand: 1.5, hold: second},
		{name: "half used, keys by Zipf's law", keys: 10_000, zipf: 6000, demand: 0.5, hold: second},
	}
}

// scale makes it the load of so many processes in place of 300: each has as much to do. A limit that is less than one for
// each stays as it is.
func (l *load) scale(processes int) {
	if l.limit >= 300 {
		l.limit = max(1, l.limit*processes/300)
	}
	l.zipf *= float64(processes) / 300
}

// size says what is limited.
func (l *load) size() string {
	if l.zipf > 0 {
		return fmt.Sprintf("%s × %d to %s", whole(float64(l.keys)), floor, whole(float64(l.limits()[0])))
	}
	return fmt.Sprintf("%d × %s", l.keys, whole(float64(l.limit)))
}

// limits returns the limit of each key.
func (l *load) limits() []int {
	limits := make([]int, l.keys)
	var sum float64
	for i := range limits {
		limits[i] = l.limit
		sum += popularity(i)
	}
	if l.zipf > 0 {
		for i := range limits {
			limits[i] = max(floor, int(math.Ceil(l.zipf*popularity(i)/sum/l.demand)))
		}
	}
	return limits
}

func popularity(key int) float64 { return math.Pow(float64(1+key), -exponent) }

// keysOf returns what draws the key of the next request.
func (l *load) keysOf(rnd *rand.Rand) func() int {
	if l.zipf == 0 {
		return func() int { return rnd.IntN(l.keys) }
	}
	zipf := rand.NewZipf(rnd, exponent, 1, uint64(l.keys-1)) //nolint:gosec // there is a key
	return func() int { return int(zipf.Uint64()) }          //nolint:gosec // less than keys
}

// rates returns how many requests a second a process gets when it is busy and when it is not.
func (l *load) rates(process, processes int) (busy, quiet float64) {
	flight := l.zipf
	if flight == 0 {
		flight = l.demand * float64(l.limit*l.keys)
	}
	rate := flight / l.hold.Seconds() / float64(processes)
	switch {
	case l.skewed && process < processes/10:
		return 9 * rate, 9 * rate
	case l.skewed:
		return rate / 9, rate / 9
	case l.phases:
		return rate * 5 / 3, rate / 3
	}
	return rate, rate
}

// source returns random numbers that are the same for the same seed and process.
func source(seed uint64, process int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(process))) //nolint:gosec // to be foreseen is what it is for
}
