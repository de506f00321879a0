//go:build unix

package fleet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/modelstore"
)

var (
	fleetRuns = flag.Int("fleet.runs", 4, "how many random fleets to try")
	fleetSeed = flag.Uint64("fleet.seed", 0, "the seed of the first random fleet; 0: random")
)

// Whatever happens that the promise allows, the sums stay within all limits: calls and answers are lost, late and out of
// order, data are lost, processes come, leave, crash, and are cut off for less than the TTL. And in the end everything is
// free again.
func TestRandomFleets(t *testing.T) {
	seed := *fleetSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range *fleetRuns {
		seed := seed + uint64(i)
		if !t.Run(fmt.Sprintf("-fleet.runs=1 -fleet.seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newWorld(t, seed).run(15 * time.Minute) })
		}) {
			return
		}
	}
}

var worldLimits = inflight.Limits{Key: 12, Org: 16, Model: 20, Total: 28}

// A world is some processes, and a ledger of what is in use over all of them.
type world struct {
	t      *testing.T
	engine *modelstore.Store

	mu       sync.Mutex // guards what follows
	rnd      *rand.Rand
	inUse    map[place]int
	admitted int
	wrong    []string

	members []*member
	ended   []*member
	calm    time.Time // when there may be the next outage
}

// A place is one limit.
type place struct {
	scope inflight.Scope
	key   inflight.Key
}

// A member is one process.
type member struct {
	*fleet.Fleet

	ctx   context.Context //nolint:containedctx // ends with the process
	crash context.CancelFunc
	work  sync.WaitGroup
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), inUse: make(map[place]int)}
	w.engine = modelstore.New(modelstore.Options{
		Latency: func() time.Duration {
			if w.n(30) == 0 {
				return time.Duration(w.n(3000)) * time.Millisecond // given up, and executed after later ones
			}
			return time.Duration(w.n(140)) * time.Millisecond // some answers come too late
		},
		Fate: func(string, int) modelstore.Fate {
			switch w.n(20) {
			case 0:
				return modelstore.CallLost
			case 1:
				return modelstore.ReplyLost
			}
			return modelstore.Delivered
		},
	})
	return w
}

func (w *world) n(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

func (w *world) run(d time.Duration) {
	for range 4 {
		w.start()
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Duration(w.n(8000)) * time.Millisecond)
		w.happen()
		if len(w.wrong) > 0 {
			break
		}
	}
	for _, m := range w.members {
		m.crash() // no more requests
		m.work.Wait()
		_ = m.Close(context.Background())
	}
	for _, m := range w.ended {
		_ = m.Close(context.Background())
	}
	require.Empty(w.t, w.wrong)
	require.Greater(w.t, w.admitted, 300)
	for p, n := range w.inUse {
		require.Zero(w.t, n, p)
	}
	time.Sleep(worldTTL + time.Second) // the capacity of those who crashed is back, and so is that of those whose leave was lost
	m := w.start()
	m.crash()
	m.work.Wait()
	require.Eventually(w.t, func() bool {
		s, err := m.Acquire(w.t.Context(), inflight.Key{Org: "a", Model: "x"}, inflight.Weight(worldLimits.Key), inflight.MaxWait(0))
		s.Release()
		return err == nil
	}, 2*worldTTL, time.Second)
	_ = m.Close(context.Background())
}

const worldTTL = 30 * time.Second

// start starts a process under load.
func (w *world) start() *member {
	reg, err := inflight.New(inflight.Config{
		Limits: inflight.Fixed(worldLimits), SweepInterval: -1, Logger: silent(), MaxWaitersPerKey: 8,
	})
	require.NoError(w.t, err)
	f, err := fleet.NewOn(w.t.Context(), w.engine, reg, fleet.Config{TTL: worldTTL, Logger: silent()})
	require.NoError(w.t, err)
	m := &member{Fleet: f}
	m.ctx, m.crash = context.WithCancel(w.t.Context())
	for range 8 {
		m.work.Go(func() { w.request(m) })
	}
	w.members = append(w.members, m)
	return m
}

// happen does something to the fleet.
func (w *world) happen() {
	m := w.members[w.n(len(w.members))]
	soon := func(do func(bool)) {
		if time.Now().Before(w.calm) {
			return // one after the other, with time for renewals in between, or nobody reaches the engine for a TTL
		}
		d := time.Duration(w.n(int(worldTTL / 3)))
		w.calm = time.Now().Add(d + worldTTL/2)
		do(true)
		time.AfterFunc(d, func() { do(false) })
	}
	switch w.n(20) {
	case 0:
		w.engine.Flush()
	case 1:
		soon(w.engine.Down)
	case 2, 3:
		id := m.Stats().ID
		soon(func(cut bool) { w.engine.Cut(id, cut) })
	case 4: // it crashes: nothing of it is heard any more, and its requests end
		if len(w.members) > 2 {
			w.engine.Cut(m.Stats().ID, true)
			w.end(m)
		}
	case 5: // it ends in order
		if len(w.members) > 2 {
			w.end(m)
			_ = m.Close(context.Background())
		}
	case 6:
		if len(w.members) < 6 {
			w.start()
		}
	default:
	}
}

func (w *world) end(m *member) {
	m.crash()
	m.work.Wait()
	for i := range w.members {
		if w.members[i] == m {
			w.members = append(w.members[:i], w.members[i+1:]...)
			break
		}
	}
	w.ended = append(w.ended, m)
}

// request makes one request after the other.
func (w *world) request(m *member) {
	for m.ctx.Err() == nil {
		k := inflight.Key{Org: []string{"a", "b"}[w.n(2)], Model: []string{"x", "y"}[w.n(2)]}
		keys := []inflight.Key{k}
		weight := 1 + w.n(3)
		opts := []inflight.Option{inflight.Weight(weight)}
		if w.n(4) == 0 {
			also := inflight.Key{Org: "b", Model: "y"}
			opts = append(opts, inflight.Also(also))
			keys = append(keys, also)
		}
		if w.n(2) == 0 {
			opts = append(opts, inflight.MaxWait(time.Duration(w.n(3))*time.Second))
		}
		s, err := m.Acquire(m.ctx, k, opts...)
		switch {
		case err == nil:
			w.count(keys, weight)
			pause(m.ctx, time.Duration(w.n(10_000))*time.Millisecond)
			w.count(keys, -weight)
			s.Release()
		case !errors.Is(err, inflight.ErrLimit) && m.ctx.Err() == nil:
			w.fail(err.Error())
			return
		}
		pause(m.ctx, time.Duration(w.n(2000))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// count counts weight at all the limits of the keys, each once.
func (w *world) count(keys []inflight.Key, weight int) {
	places := make(map[place]int)
	for _, k := range keys {
		places[place{inflight.ScopeKey, k}] = worldLimits.Key
		places[place{inflight.ScopeOrg, inflight.Key{Org: k.Org}}] = worldLimits.Org
		places[place{inflight.ScopeModel, inflight.Key{Model: k.Model}}] = worldLimits.Model
		places[place{inflight.ScopeTotal, inflight.Key{}}] = worldLimits.Total
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if weight > 0 {
		w.admitted++
	}
	for p, limit := range places {
		w.inUse[p] += weight
		if weight > 0 && w.inUse[p] > limit {
			w.wrong = append(w.wrong, fmt.Sprintf("%v: %v %v: %d of %d in use", time.Now(), p.scope, p.key, w.inUse[p], limit))
		}
	}
}

func (w *world) fail(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, what)
}
