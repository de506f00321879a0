package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/modelstore"
)

// A leased design is a fleet: the code of package fleet, on a model of the engine.
type leased struct {
	design

	engine *modelstore.Store
	fleets []*fleet.Fleet
}

const (
	ttl    = 30 * time.Second // what a fleet has if nothing is said
	settle = ttl + time.Second

	fleetShards = 16 // likewise
)

// newLeased returns when the fleet has learned that nobody holds anything.
func newLeased(processes int, l *load, net network, seed uint64) *leased {
	rnd := source(seed, processes)
	engine := modelstore.New(modelstore.Options{
		Latency: func() time.Duration { return net.way(rnd) },
		Fate: func(string, int) modelstore.Fate {
			switch x := rnd.Float64(); {
			case x < net.loss/2:
				return modelstore.CallLost
			case x < net.loss:
				return modelstore.ReplyLost
			}
			return modelstore.Delivered
		},
	})
	f := &leased{engine: engine, fleets: make([]*fleet.Fleet, processes)}
	f.design = design{
		name: "inflight", admit: make([]admitter, processes),
		calls: func() int { return engine.Counts().Calls },
		close: f.closeAll,
	}
	f.each(func(i int) {
		pause(time.Duration(i) * time.Second / time.Duration(processes))
		one, err := fleet.NewOn(context.Background(), engine, newRegistry(l.limits(), func(limit int) int { return limit }),
			fleet.Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			panic(err) // a fault of this program
		}
		f.fleets[i], f.admit[i] = one, admitterTo(one, l.wait)
	})
	pause(settle)
	return f
}

func (f *leased) each(do func(i int)) {
	var done sync.WaitGroup
	for i := range f.fleets {
		done.Go(func() { do(i) })
	}
	done.Wait()
}

func (f *leased) closeAll() {
	// What fails is that a call is lost, or the process is cut off.
	f.each(func(i int) { _ = f.fleets[i].Close(context.Background()) })
}

// id returns the name of a process in the engine.
func (f *leased) id(i int) string { return f.fleets[i].Stats().ID }
