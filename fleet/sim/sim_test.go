package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// small returns a plan for a fleet of a tenth of the size, and for less time.
func small() *plan {
	return &plan{
		processes: 30, warm: 15 * time.Second, span: 10 * time.Second, seed: 1,
		net: network{trip: time.Millisecond, loss: 0.001},
	}
}

// A fleet uses a limit well, fairly, and never beyond it, and does not call for each request.
func TestSteady(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for _, c := range []struct {
		load        load
		used, early float64 // at least, and at most
		calls       float64 // per admission, at most
	}{
		{load{name: "half used", keys: 1, limit: 300, demand: 0.5, hold: second}, 0.45, 0.01, 1},
		{load{name: "skewed", keys: 1, limit: 300, demand: 0.8, hold: second, skewed: true}, 0.7, 0.05, 2},
		{load{name: "full", keys: 1, limit: 300, demand: 1.5, hold: second}, 0.9, 0.02, 3},
		{load{name: "full, long requests", keys: 1, limit: 300, demand: 1.5, hold: 10 * second}, 0.9, 0.02, 5},
		{load{name: "full, with waiting", keys: 1, limit: 300, demand: 1.5, hold: second, wait: second}, 0.98, 0.01, 0.8},
		{load{name: "many keys half used", keys: 20, limit: 30, demand: 0.5, hold: second}, 0.45, 0.03, 2.2},
		{load{name: "less than one for each, half used", keys: 4, limit: 20, demand: 0.5, hold: second}, 0.42, 0.06, 20},
		{load{name: "less than one for each, full", keys: 4, limit: 20, demand: 3, hold: second}, 0.8, 1, 20},
		{load{name: "by Zipf's law", keys: 1000, zipf: 600, demand: 0.5, hold: second}, 0, 0.06, 2},
	} {
		t.Run(c.load.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := small()
				r := p.measure(&newLeased(p.processes, &c.load, p.net, p.seed).design, c.load)
				t.Logf("%+v, %.2f calls per admission", r, r.calls/r.admissions)
				require.LessOrEqual(t, r.peak, 1.0)
				require.Greater(t, r.utilisation, c.used)
				require.LessOrEqual(t, r.early, c.early)
				require.LessOrEqual(t, r.calls, c.calls*r.admissions)
				if c.load.demand > 1 {
					require.Greater(t, r.jain, 0.8)
				}
			})
		})
	}
}

// The limit is in use again when leases have lapsed that nobody renews, and when an engine has learned what there is. It is
// exceeded by no more than what a process has in flight that is cut off for longer.
func TestFaults(t *testing.T) {
	t.Parallel()
	const fill = 10 * time.Second // to renew what there is, and to fill what is free by requests as they come
	bounds := []struct {
		recovered time.Duration
		least     float64
		peak      float64
		above     time.Duration
	}{
		{recovered: ttl + fill, least: 0.75, peak: 1},
		{recovered: fill, least: 0.85, peak: 1.1, above: fill},
		{recovered: ttl + fill, least: 0.4, peak: 1},
		{recovered: ttl + fill, least: 0.75, peak: 1.15, above: away + fill},
		{recovered: away + ttl + fill, least: 0.4, peak: 1.1, above: away},
	}
	for i, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := small().suffer(f)
				peak, above := c.peak()
				t.Logf("before %.2f, least %.2f, recovered in %v", c.before, c.worst(), c.recovered())
				t.Logf("peak %.3f, above for %v", peak, above)
				require.Greater(t, c.before, 0.95)
				require.LessOrEqual(t, c.recovered(), bounds[i].recovered)
				require.Greater(t, c.worst(), bounds[i].least)
				require.LessOrEqual(t, peak, bounds[i].peak)
				require.LessOrEqual(t, above, bounds[i].above)
			})
		})
	}
}
