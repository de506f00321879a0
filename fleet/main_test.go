//go:build unix

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/fleettest"
)

func TestMain(m *testing.M) { fleettest.Main(m, worker) }

// Orders are what a worker is to do.
type orders struct {
	Addr   string
	Config fleet.Config
	Limits map[string]inflight.Limits // by key, as a string
	Loads  []load
}

// A load is a number of goroutines that each take a slot, hold it for a while, give it back, and begin again.
type load struct {
	Key   inflight.Key
	Also  []inflight.Key
	Names []string // what the referee calls the limits at which a slot counts

	Goroutines int
	Hold       time.Duration // or down to half of it; 0: until the end
	Pause      time.Duration // or down to half of it, after a slot and after a refusal
	Wait       bool          // for room
}

func worker(env fleettest.Env) {
	var o orders
	must(json.Unmarshal([]byte(env.Args[0]), &o))
	ctx, cancel := context.WithCancel(context.Background())
	client := redis.NewClient(quick(&redis.Options{Addr: o.Addr}))
	limits := func(k inflight.Key) inflight.Limits { return o.Limits[k.String()] }
	reg, err := inflight.New(inflight.Config{Limits: limits, Logger: silent()})
	must(err)
	f, err := fleet.New(ctx, client, reg, o.Config)
	must(err)

	var loads sync.WaitGroup
	for _, l := range o.Loads {
		for range l.Goroutines {
			loads.Go(func() { l.run(ctx, env, f) })
		}
	}
	<-env.Ended()
	cancel()
	loads.Wait()
	must(f.Close(context.Background()))
	must(client.Close())
}

func (l *load) run(ctx context.Context, env fleettest.Env, f *fleet.Fleet) {
	opts := []inflight.Option{inflight.Also(l.Also...)}
	if !l.Wait {
		opts = append(opts, inflight.MaxWait(0))
	}
	for ctx.Err() == nil {
		slot, err := f.Acquire(ctx, l.Key, opts...)
		switch {
		case err == nil:
			for _, name := range l.Names {
				env.Enter(name)
			}
			rest(ctx, l.Hold)
			for _, name := range l.Names {
				env.Leave(name)
			}
			slot.Release()
		case errors.Is(err, inflight.ErrLimit):
			env.Refused(l.Names[0])
		case ctx.Err() == nil:
			panic(err)
		}
		if l.Pause > 0 {
			rest(ctx, l.Pause)
		}
	}
}

// rest waits for d, or down to half of it, but no longer than for ctx. 0 is for ever.
func rest(ctx context.Context, d time.Duration) {
	if d == 0 {
		<-ctx.Done()
		return
	}
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// quick sets the options of a client as New recommends.
func quick(o *redis.Options) *redis.Options {
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	return o
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
