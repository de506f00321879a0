package inflight_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// lose takes n slots, drops their handles, and returns their ids. Use, if set, is what their holder does first.
//
//go:noinline
//slotvet:ignore that is what it is for
func lose(t *testing.T, r *inflight.Registry, n int, use func(*inflight.Slot)) []uint64 {
	t.Helper()
	var ids []uint64
	for range n {
		s := take(t, r, acmeGLM, inflight.Label("lost"))
		if use != nil {
			use(s)
		}
		ids = append(ids, s.ID())
	}
	return ids
}

// sweepTwice is what it takes to find a lost slot: a sweep that sees it, a collection, and another sweep.
func sweepTwice(r *inflight.Registry) []inflight.SlotInfo {
	lost := r.Sweep().Lost
	runtime.GC()
	return append(lost, r.Sweep().Lost...)
}

// A lost handle is found by the sweep after the next collection, logged and counted, and still counts against the limit.
func TestLostIsReported(t *testing.T) {
	logs := new(records)
	r := registryOf(t, inflight.Config{Name: "edge", Limits: perKey(1), SweepInterval: -1, Logger: slog.New(logs)})
	ids := lose(t, r, 1, nil)
	runtime.GC()
	lost := sweepTwice(r)
	require.Equal(t, ids, idsOf(lost))
	require.Equal(t, []any{acmeGLM, "lost", 1, true}, []any{lost[0].Key, lost[0].Label, lost[0].Weight, lost[0].Lost})
	lines := logs.take()
	require.Len(t, lines, 1)
	require.Equal(t, slog.LevelWarn, lines[0].level)
	require.Equal(t, "inflight: slot lost, its handle was dropped without Release", lines[0].message)
	require.Equal(t, map[string]any{
		"registry": "edge", "id": ids[0], "key": "acme/glm", "label": "lost", "age": lost[0].Held,
	}, lines[0].attrs)

	for range 3 {
		require.Empty(t, sweepTwice(r), "reported once")
		require.Empty(t, logs.take())
		s := r.Stats()
		require.Equal(t, []any{1, 1, uint64(1), uint64(0)}, []any{s.InUse, s.LostHeld, s.Lost, s.Reclaimed})
		refuses(t, r, acmeGLM)
	}
	require.True(t, r.Evict(ids[0]))
	require.Zero(t, r.Stats().LostHeld)
	require.EqualValues(t, 1, r.Stats().Lost)
	requireEmpty(t, r)
}

// With ReclaimLost a lost slot is freed, once, and waiters get its room.
func TestLostIsReclaimed(t *testing.T) {
	r := registryOf(t, inflight.Config{Limits: perKey(2), SweepInterval: -1, ReclaimLost: true, CaptureStack: true})
	held := take(t, r, acmeGLM)
	ids := lose(t, r, 1, nil)
	granted := make(chan *inflight.Slot)
	go func() {
		s, _ := r.Acquire(context.Background(), acmeGLM)
		granted <- s
	}()
	require.Eventually(t, func() bool { return len(r.Waiters(0)) == 1 }, 10*time.Second, time.Millisecond)
	lost := sweepTwice(r)
	require.Equal(t, ids, idsOf(lost))
	require.Contains(t, lost[0].Stack, "inflight_test.lose")
	s := <-granted
	stats := r.Stats()
	require.Equal(t, []any{2, 0, uint64(1), uint64(1)}, []any{stats.InUse, stats.LostHeld, stats.Lost, stats.Reclaimed})
	require.False(t, r.Evict(ids[0]))
	require.Empty(t, sweepTwice(r))
	s.Release()
	held.Release()
	requireEmpty(t, r)
	admits(t, r, acmeGLM, 2)
}

// The case busy-or-leaked: who is gone and who is just busy look different.
func TestBusyOrLeaked(t *testing.T) {
	logs := new(records)
	r := registryOf(t, inflight.Config{SweepInterval: -1, LongHeld: 1, Logger: slog.New(logs)})
	busy := take(t, r, acmeGLM, inflight.Label("busy"))
	leaked := lose(t, r, 1, nil)
	sweepTwice(r)
	slots := r.Slots(0)
	require.Equal(t, []uint64{busy.ID(), leaked[0]}, idsOf(slots))
	require.Equal(t, []bool{false, true}, []bool{slots[0].Lost, slots[1].Lost})
	require.Equal(t, []bool{true, true}, []bool{slots[0].LongHeld, slots[1].LongHeld})
	require.Equal(t, []int{2, 1}, []int{r.Stats().LongHeld, r.Stats().LostHeld})
	labels := make(map[string][]any)
	for _, line := range logs.take() {
		labels[line.message] = append(labels[line.message], line.attrs["label"])
	}
	require.Equal(t, map[string][]any{
		"inflight: slot held long":                                    {"busy", "lost"},
		"inflight: slot lost, its handle was dropped without Release": {"lost"},
	}, labels)
	busy.Release()
	require.True(t, r.Evict(leaked[0]))
	require.Equal(t, []int{0, 0}, []int{r.Stats().LongHeld, r.Stats().LostHeld})
}

// What the registry knows of a slot's contexts does not keep its handle: a slot is lost once its contexts are dropped too.
func TestLostWithItsContexts(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context){
		"not asked":      func(context.Context) {},
		"asked for Done": func(ctx context.Context) { ctx.Done() },
		"with a child that has ended": func(ctx context.Context) {
			_, cancel := context.WithCancel(ctx)
			cancel()
		},
		"with a function that was stopped": func(ctx context.Context) { context.AfterFunc(ctx, func() {})() },
	} {
		t.Run(name, func(t *testing.T) {
			r := registryOf(t, inflight.Config{SweepInterval: -1, ReclaimLost: true})
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			ids := lose(t, r, 1, func(s *inflight.Slot) { use(s.Context(parent)) })
			require.Equal(t, ids, idsOf(sweepTwice(r)))
			requireEmpty(t, r)
		})
	}
}

// A context that somebody still has keeps the slot from being lost, and so does a child of it.
func TestContextKeepsTheHandle(t *testing.T) {
	r := registryOf(t, inflight.Config{SweepInterval: -1, ReclaimLost: true})
	contexts := make(chan context.Context, 1)
	ids := lose(t, r, 1, func(s *inflight.Slot) { contexts <- context.WithoutCancel(s.Context(t.Context())) })
	for range 3 {
		require.Empty(t, sweepTwice(r))
	}
	require.Equal(t, 1, r.InUse(acmeGLM))
	<-contexts
	require.Equal(t, ids, idsOf(sweepTwice(r)))
	requireEmpty(t, r)
}

// In a small registry the sweep that follows a collection finds all that it can find, and need not be told.
func TestLostAreFoundAtOnce(t *testing.T) {
	r := registryOf(t, inflight.Config{Limits: perKey(inflight.Unlimited), SweepInterval: -1, ReclaimLost: true})
	for range 10 {
		ids := lose(t, r, 200, nil)
		require.Equal(t, ids, slices.Sorted(slices.Values(idsOf(sweepTwice(r)))))
		requireEmpty(t, r)
	}
}

// All of many lost slots are found in the end, also those behind many that are just held for long.
func TestManyLost(t *testing.T) {
	for _, reclaim := range []bool{false, true} {
		r := registryOf(t, inflight.Config{Limits: perKey(inflight.Unlimited), SweepInterval: -1, ReclaimLost: reclaim})
		var held []*inflight.Slot
		for range 500 {
			held = append(held, take(t, r, acmeGLM))
		}
		want := lose(t, r, 5000, nil)
		var got []uint64
		unsorted := 0
		require.Eventually(t, func() bool {
			found := idsOf(r.Sweep().Lost)
			if !slices.IsSorted(found) {
				unsorted++
			}
			got = append(got, found...)
			runtime.GC()
			return len(got) >= len(want)
		}, 20*time.Second, time.Millisecond)
		require.Zero(t, unsorted, "reports in an order that is the collector's")
		slices.Sort(got)
		require.Equal(t, want, got, "each once")
		require.Empty(t, r.Sweep().Lost)
		s := r.Stats()
		require.EqualValues(t, 5000, s.Lost)
		if reclaim {
			require.Equal(t, []any{500, 0, uint64(5000)}, []any{s.Holders, s.LostHeld, s.Reclaimed})
		} else {
			require.Equal(t, []any{5500, 5000, uint64(0)}, []any{s.Holders, s.LostHeld, s.Reclaimed})
		}
		releaseAll(held)
	}
}

// Who released properly is not lost, whatever the collector does later, and neither is whoever uses the record next.
func TestReleasedIsNotLost(t *testing.T) {
	r := registryOf(t, inflight.Config{Limits: perKey(inflight.Unlimited), SweepInterval: -1, ReclaimLost: true})
	for range 5 {
		func() {
			var slots []*inflight.Slot
			for range 100 {
				slots = append(slots, take(t, r, acmeGLM))
			}
			r.Sweep()
			releaseAll(slots)
		}()
		var held []*inflight.Slot
		for range 100 {
			held = append(held, take(t, r, acmeGLM))
		}
		require.Empty(t, sweepTwice(r))
		require.Empty(t, sweepTwice(r))
		require.Equal(t, 100, r.InUse(acmeGLM))
		releaseAll(held)
	}
	require.Zero(t, r.Stats().Lost)
	requireEmpty(t, r)
}

// A slot is not lost either while its Release, which is the last that anybody has to do with it, waits for the lock.
func TestNotLostWhileReleaseWaits(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	handle, release := func() (weak.Pointer[inflight.Slot], func()) {
		s := take(t, r, acmeGLM)
		r.Sweep()
		return weak.Make(s), s.Release
	}()
	released := make(chan struct{})
	r.WhileLocked(func() {
		go func() {
			release()
			close(released)
		}()
		stacks := make([]byte, 1<<20)
		require.Eventually(t, func() bool {
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "[sync.Mutex.Lock")
		}, 10*time.Second, time.Millisecond)
		runtime.GC()
		require.NotNil(t, handle.Value())
	})
	<-released
	requireEmpty(t, r)
}

// A handle that is in use while it is swept is the same afterwards: it releases, and its contexts end.
func TestSweptSlotStillWorks(t *testing.T) {
	r := registryOf(t, inflight.Config{SweepInterval: -1, ReclaimLost: true})
	s := take(t, r, acmeGLM)
	before := s.Context(t.Context())
	requireLive(t, before)
	require.Empty(t, sweepTwice(r))
	after := s.Context(t.Context())
	requireLive(t, after)
	require.True(t, r.Cancel(s.ID(), errOwn))
	requireEnded(t, before, errOwn)
	requireEnded(t, after, errOwn)
	requireEnded(t, s.Context(t.Context()), errOwn)
	s.Release()
	requireEmpty(t, r)
}
