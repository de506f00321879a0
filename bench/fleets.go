package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/redis/go-redis/v9"
)

const (
	fleetGroup = "A limit over many processes, on a Redis on the same machine"

	oneProcess = "inflight, one process"
	inGrant    = "fleet, within the grant"
)

// fleetGroups are about limits that hold over many processes.
func fleetGroups(client *redis.Client) []group {
	limits := inflight.Limits{Key: 1000}
	all := inflight.Limits{Key: 1000, Org: 1000, Model: 1000, Total: 1000}
	return []group{{name: fleetGroup, base: oneProcess, rows: []row{
		{name: oneProcess, buys: contenders[0].buys, setup: func() (func(n int), func()) {
			reg := newRegistry(limits)
			return acquireFrom(reg, hold(reg, 1, 1))
		}},
		fleetRow(inGrant, client, limits),
		{name: "inflight, one process, all scopes limited", buys: contenders[0].buys, setup: func() (func(n int), func()) {
			reg := newRegistry(all)
			return acquireFrom(reg, hold(reg, 1, 1))
		}},
		fleetRow("fleet, within the grant, all scopes limited", client, all),
		{name: "a sorted set in Redis", setup: func() (func(n int), func()) {
			return newSortedSet(client, limits.Key).cycle, func() {}
		}},
	}}}
}

func acquireFrom(a inflight.Acquirer, end func()) (cycle func(n int), stop func()) {
	return func(n int) {
		ctx := context.Background()
		for range n {
			must(a.Acquire(ctx, key)).Release()
		}
	}, end
}

// fleetRow measures a process that has been granted all of the limits, beside a live holder of the same key.
func fleetRow(name string, client *redis.Client, limits inflight.Limits) row {
	return row{name: name, buys: contenders[0].buys, setup: func() (func(n int), func()) {
		reg := newRegistry(limits)
		f := must(fleet.New(context.Background(), client, reg, fleet.Config{Prefix: name, Processes: 1}))
		held := must(f.Acquire(context.Background(), key))
		return acquireFrom(f, func() {
			held.Release()
			must(0, f.Close(context.Background()))
		})
	}}
}

// A crowd is the demand on one limit of a fleet.
type crowd struct {
	name    string
	key     inflight.Key
	limit   int
	workers int           // of each process
	hold    time.Duration // on average
	idle    time.Duration // between two requests of a worker, on average; refused ones wait for that long too
}

const (
	processes = 6
	settling  = 31 * time.Second // for a Redis without data: one TTL of learning
	counting  = 5 * time.Second
)

var crowds = []crowd{
	{"half of the limit of 200 in use", inflight.Key{Org: "unsaturated"}, 200, 17, 20 * time.Millisecond, 0},
	{"limit of 200 saturated", inflight.Key{Org: "large"}, 200, 60, 20 * time.Millisecond, 5 * time.Millisecond},
	{"limit of 24 saturated", inflight.Key{Org: "middle"}, 24, 12, 20 * time.Millisecond, 5 * time.Millisecond},
	{"limit of 3 saturated", inflight.Key{Org: "small"}, 3, 4, 20 * time.Millisecond, 5 * time.Millisecond},
}

// fleetGoals are what was set out to be reached by fleets.
func fleetGoals(timings map[string]timing, ratios []ratio) []goal {
	goals := []goal{{
		name: "within the grant of a fleet: time, in those of one process",
		got:  timings[inGrant].nanos / timings[oneProcess].nanos, max: 1.5, show: factor,
	}}
	for i, most := range []float64{0.02, 0.2} {
		goals = append(goals, goal{
			name: "calls to Redis for each admission, " + ratios[i].name, got: ratios[i].perAdmission(), max: most, show: factor,
		})
	}
	return goals
}

// A ratio is how many calls to Redis an admission took.
type ratio struct {
	name             string
	calls, admission uint64
}

func (r ratio) perAdmission() float64 { return float64(r.calls) / float64(r.admission) }

func (r ratio) line() line {
	return line{name: r.name, compared: fmt.Sprintf("%.4f calls for each of %s admissions", r.perAdmission(), grouped(int(r.admission)))}
}

// callsPerAdmission counts the calls of a fleet of several processes (which are registries here) under one crowd after the
// other.
func callsPerAdmission(client *redis.Client) []ratio {
	ctx := context.Background()
	limits := make(map[inflight.Key]inflight.Limits)
	for _, c := range crowds {
		limits[c.key] = inflight.Limits{Key: c.limit}
	}
	fleets := make([]*fleet.Fleet, processes)
	for i := range fleets {
		reg := must(inflight.New(inflight.Config{Limits: func(k inflight.Key) inflight.Limits { return limits[k] }}))
		fleets[i] = must(fleet.New(ctx, client, reg, fleet.Config{Prefix: "crowds"}))
	}
	time.Sleep(settling)
	var ratios []ratio
	for _, c := range crowds {
		ratios = append(ratios, c.count(fleets))
	}
	for _, f := range fleets {
		must(0, f.Close(ctx))
	}
	return ratios
}

func (c crowd) count(fleets []*fleet.Fleet) ratio {
	ctx, cancel := context.WithCancel(context.Background())
	var (
		workers  sync.WaitGroup
		admitted atomic.Uint64
	)
	for _, f := range fleets {
		for range c.workers {
			workers.Go(func() {
				for ctx.Err() == nil {
					if s, err := f.Acquire(ctx, c.key, inflight.MaxWait(0)); err == nil {
						admitted.Add(1)
						pause(c.hold)
						s.Release()
					}
					pause(c.idle)
				}
			})
		}
	}
	calls := func() (n uint64) {
		for _, f := range fleets {
			n += f.Stats().Calls
		}
		return n
	}
	time.Sleep(counting / 5) // until the grants are as they will be
	r := ratio{name: c.name, calls: calls(), admission: admitted.Load()}
	time.Sleep(counting)
	r.calls, r.admission = calls()-r.calls, admitted.Load()-r.admission
	cancel()
	workers.Wait()
	return r
}

// pause takes from half of d to one and a half.
func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(d/2 + rand.N(d))
	}
}
