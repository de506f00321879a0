package inflight_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// TestStressByRoles lets everybody do everything at once: acquire, wait, give up, cancel, evict, sweep, look, and change
// the limits. All the time no more may be live than the highest limits allow, and in the end nothing may be left.
func TestStressByRoles(t *testing.T) {
	rounds := sized(20_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, seed)

	var workers, watchers sync.WaitGroup
	for role, f := range []func(*rand.Rand){
		w.acquires, w.acquires, w.acquires, w.acquires, w.waits, w.waits, w.waits, w.waits, w.isEvicted, w.isEvicted,
	} {
		rnd := rand.New(rand.NewPCG(seed, uint64(role)))
		workers.Go(func() {
			for range rounds {
				f(rnd)
			}
		})
	}
	var done atomic.Bool
	for role, f := range []func(*rand.Rand){w.evicts, w.cancels, w.sweeps, w.looks, w.looks, w.changesLimits} {
		rnd := rand.New(rand.NewPCG(seed, uint64(100+role)))
		watchers.Go(func() {
			for !done.Load() {
				f(rnd)
				runtime.Gosched()
			}
		})
	}
	workers.Wait()
	done.Store(true)
	watchers.Wait()

	for _, g := range w.live {
		require.Zero(t, g.now.Load())
	}
	requireEmpty(t, w.reg)
	s := w.reg.Stats()
	require.EqualValues(t, w.attempts.Load(), s.Admitted+s.RejectedTotal()+s.Closed+s.Canceled)
	require.NotZero(t, s.Waited)
	require.NotZero(t, s.Canceled)
	require.NotZero(t, s.Evicted)
	require.NotZero(t, w.cancelled.Load())
	t.Logf("%d attempts, %d admitted, %d refused, %d waited, %d gave up, %d evicted, %d cancelled",
		w.attempts.Load(), s.Admitted, s.RejectedTotal(), s.Waited, s.Canceled, s.Evicted, w.cancelled.Load())
}

var (
	lowLimits  = inflight.Limits{Key: 3, Org: 5, Model: 6, Total: 9}
	highLimits = inflight.Limits{Key: 5, Org: 8, Model: 10, Total: 14}
)

const victims = "victims" // the org whose slots are evicted, so that nobody else can say how many are live

// A world is a registry and what is known of it from outside.
type world struct {
	t   *testing.T
	reg *inflight.Registry

	limits              atomic.Pointer[inflight.Limits]
	live                map[inflight.Key]*gauge // of keys, orgs and models, which have half a key, and of all, Key{}
	attempts, cancelled atomic.Int64
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, live: make(map[inflight.Key]*gauge)}
	w.limits.Store(&lowLimits)
	w.reg = registryOf(t, inflight.Config{
		Limits:        func(inflight.Key) inflight.Limits { return *w.limits.Load() },
		SweepInterval: -1, LongHeld: time.Millisecond, MaxHold: 2 * time.Millisecond, ReclaimLost: true,
		MaxWaiters: 6, MaxWaitersPerKey: 3, CaptureStack: seed%2 == 0, Logger: slog.New(slog.DiscardHandler),
	})
	for _, org := range []string{"", "a", "b"} {
		for _, model := range []string{"", "x", "y"} {
			w.live[keyOf(org, model)] = new(gauge)
		}
	}
	return w
}

// options are those of an acquire at random, and counts are the gauges where it will count.
func (w *world) options(rnd *rand.Rand) (k inflight.Key, weight int, opts []inflight.Option, counts map[inflight.Key]bool) {
	pick := func() inflight.Key { return keyOf([]string{"a", "b"}[rnd.IntN(2)], []string{"x", "y"}[rnd.IntN(2)]) }
	k, weight = pick(), rnd.IntN(4)
	keys := []inflight.Key{k}
	opts = []inflight.Option{inflight.Weight(weight), inflight.Label("worker")}
	if rnd.IntN(3) == 0 {
		keys = append(keys, pick(), pick())
		opts = append(opts, inflight.Also(keys[1:]...))
	}
	counts = make(map[inflight.Key]bool)
	for _, k := range keys {
		for _, at := range []inflight.Key{k, {Org: k.Org}, {Model: k.Model}, {}} {
			counts[at] = true
		}
	}
	return k, weight, opts, counts
}

// holds keeps a slot for a moment, and checks that so much may be live.
func (w *world) holds(rnd *rand.Rand, s *inflight.Slot, weight int, counts map[inflight.Key]bool) {
	for at := range counts {
		g := w.live[at]
		defer g.hold(weight)()
		limit := highLimits.Key
		switch {
		case at == inflight.Key{}:
			limit = highLimits.Total
		case at.Org == "":
			limit = highLimits.Model
		case at.Model == "":
			limit = highLimits.Org
		}
		if peak := g.peak.Load(); peak > int64(limit) {
			w.t.Errorf("%v: %d live at once, of %d", at, peak, limit)
		}
	}
	ctx := s.Context(context.Background())
	if rnd.IntN(2) == 0 {
		_ = ctx.Done()
	}
	for range rnd.IntN(4) {
		runtime.Gosched()
	}
	if ctx.Err() != nil {
		w.cancelled.Add(1)
	}
}

func (w *world) acquires(rnd *rand.Rand) {
	k, weight, opts, counts := w.options(rnd)
	w.attempts.Add(1)
	s, err := w.reg.TryAcquire(k, opts...)
	if err != nil {
		return
	}
	w.holds(rnd, s, weight, counts)
	s.Release()
	if rnd.IntN(2) == 0 {
		s.Release()
	}
}

func (w *world) waits(rnd *rand.Rand) {
	k, weight, opts, counts := w.options(rnd)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rnd.IntN(2) == 0 {
		defer time.AfterFunc(upTo(rnd, 200*time.Microsecond), cancel).Stop()
	}
	if rnd.IntN(2) == 0 {
		opts = append(opts, inflight.MaxWait(upTo(rnd, 500*time.Microsecond)))
	}
	w.attempts.Add(1)
	s, err := w.reg.Acquire(ctx, k, opts...)
	if err != nil {
		return
	}
	w.holds(rnd, s, weight, counts)
	s.Release()
}

// isEvicted holds a slot that others evict, often before it is released.
func (w *world) isEvicted(rnd *rand.Rand) {
	w.attempts.Add(1)
	s, err := w.reg.TryAcquire(keyOf(victims, "x"), inflight.Weight(rnd.IntN(2)))
	if err != nil {
		runtime.Gosched()
		return
	}
	ctx := s.Context(context.Background())
	for n := 0; ctx.Err() == nil && n < 1+rnd.IntN(50); n++ {
		runtime.Gosched()
	}
	s.Release()
	if ctx.Err() == nil {
		w.t.Errorf("slot %d: its context lives on", s.ID())
	}
}

func (w *world) evicts(*rand.Rand) {
	for _, s := range w.reg.Slots(0) {
		if s.Key.Org == victims && w.reg.Evict(s.ID) && w.reg.Evict(s.ID) {
			w.t.Errorf("slot %d evicted twice", s.ID)
		}
	}
}

func (w *world) cancels(rnd *rand.Rand) {
	if slots := w.reg.Slots(3); len(slots) > 0 {
		w.reg.Cancel(slots[rnd.IntN(len(slots))].ID, errOwn)
	}
}

func (w *world) sweeps(*rand.Rand) {
	if rep := w.reg.Sweep(); len(rep.Lost) > 0 {
		w.t.Errorf("slots that are held are lost: %v", rep.Lost)
	}
}

// looks checks what can be seen at any moment.
func (w *world) looks(*rand.Rand) {
	s := w.reg.Stats()
	if got := s.Released + s.Evicted + s.Reclaimed + uint64(s.Holders); got != s.Admitted {
		w.t.Errorf("%d ended or live, %d admitted", got, s.Admitted)
	}
	if s.InUse < 0 || s.InUse > highLimits.Total || s.PeakInUse > highLimits.Total || s.PeakPerKey > highLimits.Key {
		w.t.Errorf("in use out of bounds: %+v", s)
	}
	if s.MaxPerKey < 0 || s.MaxPerKey > s.InUse || s.LongHeld > s.Holders || s.Waiters > 6 {
		w.t.Errorf("gauges do not fit one another: %+v", s)
	}
	for _, k := range w.reg.Keys(0) {
		if k.InUse < 0 || k.InUse > highLimits.Key || k.Holders == 0 && (k.Waiters == 0 || k.InUse > 0) {
			w.t.Errorf("key out of bounds: %+v", k)
		}
	}
	var last uint64
	for _, slot := range w.reg.Slots(0) {
		if slot.ID <= last {
			w.t.Errorf("slot %d listed after %d", slot.ID, last)
		}
		last = slot.ID
	}
	w.reg.Waiters(0)
}

func (w *world) changesLimits(rnd *rand.Rand) {
	w.limits.Store([]*inflight.Limits{&lowLimits, &highLimits}[rnd.IntN(2)])
	w.reg.LimitsChanged()
}
