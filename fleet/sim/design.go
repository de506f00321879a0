package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inflight-go/inflight"
)

// A design is a way to keep limits over many processes.
type design struct {
	name  string
	admit []admitter // one for each process
	calls func() int // to the engine so far
	close func()
}

// A network is between the processes and the engine.
type network struct {
	trip time.Duration // there and back, on average; each way takes from half of its half to half more than that
	loss float64       // of all calls, the part that is lost there or back
}

func (n network) way(rnd *rand.Rand) time.Duration {
	return n.trip/4 + time.Duration(rnd.Int64N(int64(n.trip/2)))
}

func keyOf(i int) inflight.Key { return inflight.Key{Org: strconv.Itoa(i), Model: "m"} }

// newRegistry returns a registry of which each key has its own limit, or what is left of it.
func newRegistry(limits []int, share func(limit int) int) *inflight.Registry {
	of := make(map[inflight.Key]inflight.Limits, len(limits))
	for i, limit := range limits {
		of[keyOf(i)] = inflight.Limits{Key: share(limit)}
	}
	reg, err := inflight.New(inflight.Config{
		Limits:        func(k inflight.Key) inflight.Limits { return of[k] },
		SweepInterval: -1,
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err) // a fault of this program
	}
	return reg
}

// admitterTo has requests wait so long for room.
func admitterTo(a inflight.Acquirer, wait time.Duration) admitter {
	return func(key int) func() {
		slot, err := a.Acquire(context.Background(), keyOf(key), inflight.MaxWait(wait))
		if err != nil {
			return nil
		}
		return slot.Release
	}
}

// newSplit gives each process its part of each limit, for good.
func newSplit(processes int, l *load) *design {
	d := &design{name: "limit / processes", calls: func() int { return 0 }}
	var closers []func() error
	for i := range processes {
		reg := newRegistry(l.limits(), func(limit int) int {
			share := limit / processes
			if i < limit%processes {
				share++
			}
			if share == 0 {
				return inflight.Blocked
			}
			return share
		})
		closers = append(closers, reg.Close)
		d.admit = append(d.admit, admitterTo(reg, l.wait))
	}
	d.close = func() {
		for _, c := range closers {
			_ = c() // what fails is that something is in flight
		}
	}
	return d
}

// newCentral asks the engine about each request: there is a sorted set of holders for each key, which is counted and added
// to in one call, and removed from in another. Nobody waits there, and no call is lost.
func newCentral(processes int, l *load, net network, seed uint64) *design {
	var mu sync.Mutex
	var calls atomic.Int64
	limits, inUse, rnd := l.limits(), make([]int, l.keys), source(seed, processes)
	change := func(key, n int) (ok bool) {
		calls.Add(1)
		mu.Lock()
		there, back := net.way(rnd), net.way(rnd)
		mu.Unlock()
		pause(there)
		mu.Lock()
		if ok = inUse[key]+n <= limits[key]; ok {
			inUse[key] += n
		}
		mu.Unlock()
		pause(back)
		return ok
	}
	d := &design{name: "sorted set", calls: func() int { return int(calls.Load()) }, close: func() {}}
	for range processes {
		d.admit = append(d.admit, func(key int) func() {
			if !change(key, 1) {
				return nil
			}
			return func() { change(key, -1) }
		})
	}
	return d
}
