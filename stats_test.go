package inflight_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Every acquire is counted in exactly one place, whatever became of it, and so is every slot.
func TestStatsAddUp(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{
			Limits: inflight.Fixed(inflight.Limits{Key: 3, Org: 5, Total: 7}), SweepInterval: -1, MaxWaiters: 4,
		})
		attempts := 0
		attempt := func() {
			k := keyOf([]string{"a", "b"}[rnd.IntN(2)], []string{"x", "y"}[rnd.IntN(2)])
			opts := []inflight.Option{inflight.MaxWait(upTo(rnd, time.Second/4)), inflight.Weight(rnd.IntN(5))}
			how, holds, evicts := rnd.IntN(4), upTo(rnd, time.Second), rnd.IntN(4) == 0
			go func() {
				var s *inflight.Slot
				var err error
				switch how {
				case 0:
					s, err = r.TryAcquire(k, opts...)
				case 1:
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					s, err = r.Acquire(ctx, k, opts...)
				default:
					s, err = r.Acquire(t.Context(), k, opts...)
				}
				if err != nil {
					return
				}
				time.Sleep(holds)
				if evicts {
					r.Evict(s.ID())
				}
				s.Release()
			}()
			attempts++
		}
		for range 3000 {
			attempt()
			time.Sleep(upTo(rnd, 100*time.Millisecond))
			synctest.Wait()
			s := r.Stats()
			failed := s.RejectedTotal() + s.Closed + s.Canceled
			require.EqualValues(t, attempts, s.Admitted+failed+uint64(s.Waiters))
			require.EqualValues(t, s.Holders, s.Admitted-s.Released-s.Evicted-s.Reclaimed)
			require.Equal(t, s.Released+s.Evicted+s.Reclaimed, s.Hold.Count())
			require.Equal(t, s.Waited, s.Wait.Count())
		}
		require.NoError(t, r.Close())
		for range 20 {
			attempt()
		}
		time.Sleep(time.Minute)
		requireEmpty(t, r)
		s := r.Stats()
		require.EqualValues(t, attempts, s.Admitted+s.RejectedTotal()+s.Closed+s.Canceled)
		for name, n := range map[string]uint64{
			"admitted": s.Admitted, "released": s.Released, "evicted": s.Evicted, "canceled": s.Canceled, "closed": s.Closed,
			"waited": s.Waited, "key full": s.Rejected[inflight.ScopeKey].Full,
			"key too heavy": s.Rejected[inflight.ScopeKey].TooHeavy, "timed out": s.Rejected[inflight.ScopeKey].TimedOut,
			"org": s.Rejected[inflight.ScopeOrg].Total(), "total": s.Rejected[inflight.ScopeTotal].Total(),
		} {
			require.NotZero(t, n, "this mix should reach everything: %s", name)
		}
	})
}

func upTo(rnd *rand.Rand, d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }

// A refusal is counted under the scope that refused and its cause.
func TestStatsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{
			Limits: inflight.Fixed(inflight.Limits{Key: 1, Org: 2, Model: 3, Total: 4}), SweepInterval: -1, MaxWaiters: 1,
		})
		defer take(t, r, acmeGLM).Release()
		defer take(t, r, acmeQwen).Release()
		defer take(t, r, zebraGLM).Release()
		//slotvet:ignore each is refused
		attempt := func(k inflight.Key, opts ...inflight.Option) { _, _ = r.Acquire(t.Context(), k, opts...) }
		attempt(acmeGLM, inflight.MaxWait(0))
		attempt(keyOf("acme", "yi"), inflight.MaxWait(-1))
		attempt(acmeGLM, inflight.MaxWait(time.Second))
		attempt(acmeGLM, inflight.Weight(2))
		attempt(zebraYi, inflight.Weight(5))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = r.Acquire(ctx, acmeGLM) }() //slotvet:ignore cancelled while it waits
		synctest.Wait()
		attempt(zebraGLM)
		attempt(acmeQwen)
		cancel()
		synctest.Wait()
		attempt(zebraYi, inflight.Also(acmeGLM), inflight.MaxWait(0))

		s := r.Stats()
		require.Equal(t, inflight.Rejections{Full: 2, TooHeavy: 2, TimedOut: 1, QueueFull: 2}, s.Rejected[inflight.ScopeKey])
		require.Equal(t, inflight.Rejections{Full: 1}, s.Rejected[inflight.ScopeOrg])
		require.EqualValues(t, 7, s.Rejected[inflight.ScopeKey].Total())
		require.EqualValues(t, 8, s.RejectedTotal())
		require.EqualValues(t, 1, s.Canceled)
		require.EqualValues(t, 2, s.Waited)
		require.InDelta(t, 1, s.Wait.Sum, 1e-9)
	})
}

// The bound of a bucket belongs to it, and what is longer than all of them has a bucket of its own.
func TestHistogramBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, inflight.Limits{})
		bounds := r.Stats().Hold.Bounds
		require.Len(t, bounds, 23)
		require.True(t, slices.IsSorted(bounds))
		require.Equal(t, []float64{math.Ldexp(1, -10), 1, 4096}, []float64{bounds[0], bounds[10], bounds[22]})
		require.Equal(t, bounds, r.Stats().Wait.Bounds)
		lowest := 976562 * time.Nanosecond // the bound is half a nanosecond more
		for held, bucket := range map[time.Duration]int{
			0: 0, 1: 0, lowest: 0, lowest + 1: 1, 2*lowest + 1: 1, 2*lowest + 2: 2,
			time.Second / 2: 9, time.Second/2 + 1: 10, time.Second: 10, time.Second + 1: 11, 2 * time.Second: 11, 2*time.Second + 1: 12,
			4096 * time.Second: 22, 4096*time.Second + 1: 23, 365 * 24 * time.Hour: 23,
		} {
			before := r.Stats().Hold
			s := take(t, r, acmeGLM)
			time.Sleep(held)
			s.Release()
			after := r.Stats().Hold
			before.Counts[bucket]++
			require.Equal(t, before.Counts, after.Counts, "held %v", held)
			require.InDelta(t, before.Sum+held.Seconds(), after.Sum, 1e-6)
		}
		require.EqualValues(t, 15, r.Stats().Hold.Count())
	})
}

// Whatever ends a slot, the time that it was held is counted, and only that.
func TestHoldCountsEveryEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, inflight.Limits{})
		a, b, c := take(t, r, acmeGLM), take(t, r, acmeGLM), take(t, r, acmeGLM)
		time.Sleep(time.Second)
		a.Release()
		require.Equal(t, time.Second, r.Stats().OldestHeld)
		time.Sleep(time.Second)
		require.True(t, r.Cancel(c.ID(), nil))
		require.True(t, r.Evict(b.ID()))
		a.Release()
		b.Release()
		require.EqualValues(t, 2, r.Stats().Hold.Count())
		require.InDelta(t, 3, r.Stats().Hold.Sum, 1e-9)
		c.Release()
		require.InDelta(t, 5, r.Stats().Hold.Sum, 1e-9)
		require.Zero(t, r.Stats().OldestHeld)
	})
}

// The sum of all holds may be longer than a time.Duration can tell: a busy registry gets there in days.
func TestHoldSumDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const years = 10 * 365 * 24 * time.Hour
		r := newRegistry(t, inflight.Limits{})
		var slots []*inflight.Slot
		for range 60 {
			slots = append(slots, take(t, r, acmeGLM))
		}
		time.Sleep(years)
		releaseAll(slots)
		require.InEpsilon(t, 60*years.Seconds(), r.Stats().Hold.Sum, 1e-9)
	})
}

// The peaks are the most that was in use since New, in all and of one key, also of a key of Also.
func TestPeaks(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	peaks := func() []int { s := r.Stats(); return []int{s.PeakInUse, s.PeakPerKey, s.InUse, s.MaxPerKey} }
	require.Equal(t, []int{0, 0, 0, 0}, peaks())
	a := take(t, r, acmeGLM, inflight.Weight(2))
	b := take(t, r, zebraYi, inflight.Weight(3))
	require.Equal(t, []int{5, 3, 5, 3}, peaks())
	c := take(t, r, acmeQwen, inflight.Also(zebraYi), inflight.Weight(2))
	require.Equal(t, []int{7, 5, 7, 5}, peaks())
	b.Release()
	c.Release()
	require.Equal(t, []int{7, 5, 2, 2}, peaks())
	d := take(t, r, acmeGLM, inflight.Weight(4))
	require.Equal(t, []int{7, 6, 6, 6}, peaks())
	a.Release()
	d.Release()
	require.Equal(t, []int{7, 6, 0, 0}, peaks())
}

// The recent peaks forget what was before the last whole sweep interval, and nothing of that and of the running one.
func TestRecentPeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, inflight.Limits{})
		recent := func() []int { s := r.Stats(); return []int{s.RecentPeakInUse, s.RecentPeakPerKey} }
		burst := func(n int) {
			take(t, r, acmeGLM, inflight.Weight(n), inflight.Also(zebraGLM)).Release()
		}
		require.Zero(t, r.Stats().Sweeps)
		require.Zero(t, r.Stats().LastSweep)

		stays := take(t, r, zebraYi, inflight.Weight(2))
		burst(5)
		require.Equal(t, []int{7, 5}, recent())
		time.Sleep(time.Minute)
		at := r.Sweep().At
		require.Equal(t, []int{7, 5}, recent(), "the interval that has just ended")
		burst(3)
		require.Equal(t, []int{7, 5}, recent())
		r.Sweep()
		require.Equal(t, []int{5, 3}, recent())
		require.Equal(t, at, r.Stats().LastSweep)
		time.Sleep(time.Minute)
		r.Sweep()
		require.Equal(t, []int{2, 2}, recent(), "what was in use at the beginning counts too")
		require.Equal(t, []int{7, 5}, []int{r.Stats().PeakInUse, r.Stats().PeakPerKey}, "since New")
		require.EqualValues(t, 3, r.Stats().Sweeps)
		require.Equal(t, time.Now(), r.Stats().LastSweep)
		stays.Release()
	})
}

// The case gauge-truth: in use is what the live holders say, after any mix of ends and panics.
func TestGaugeTruth(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := newRegistry(t, inflight.Limits{Key: 20})
	keys := []inflight.Key{acmeGLM, acmeQwen, zebraGLM}
	var live []*inflight.Slot
	for range 2000 {
		if s, err := r.TryAcquire(keys[rnd.IntN(3)], inflight.Weight(rnd.IntN(3)), inflight.Also(keys[rnd.IntN(3)])); err == nil {
			live = append(live, s)
		}
		if len(live) > 10 {
			i := rnd.IntN(len(live))
			s := live[i]
			switch rnd.IntN(4) {
			case 0:
				r.Evict(s.ID())
			case 1:
				r.Cancel(s.ID(), errOwn)
				s.Release()
			case 2:
				require.Panics(t, func() {
					defer s.Release()
					panic("while holding")
				})
			case 3:
				s.Release()
			}
			live = slices.Delete(live, i, i+1)
		}
		inUse, holders := 0, r.Slots(0)
		perKey := make(map[inflight.Key]int)
		for i := range holders {
			inUse += holders[i].Weight
			for _, k := range append(holders[i].Also, holders[i].Key) {
				perKey[k] += holders[i].Weight
			}
		}
		s := r.Stats()
		require.Equal(t, []int{len(live), len(live), inUse}, []int{s.Holders, len(holders), s.InUse})
		require.Len(t, perKey, s.Keys)
		for k, n := range perKey {
			require.Equal(t, n, r.InUse(k))
		}
	}
	releaseAll(live)
	requireEmpty(t, r)
}

// A snapshot stays as it is.
func TestStatsIsASnapshot(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	before := r.Stats()
	take(t, r, acmeGLM).Release()
	require.Zero(t, before.Hold.Count())
	after := r.Stats()
	after.Hold.Counts[0], after.Hold.Bounds[0] = 7, 7
	require.EqualValues(t, 1, r.Stats().Hold.Count())
	require.Less(t, r.Stats().Hold.Bounds[0], 1.0)
}
