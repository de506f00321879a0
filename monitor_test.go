package inflight_test

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Slots says all there is to know of each holder, oldest first.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{SweepInterval: -1, LongHeld: 90 * time.Second})
		start := time.Now()
		require.Empty(t, r.Slots(0))
		a := take(t, r, acmeGLM, inflight.Label("first"), inflight.Weight(3), inflight.Also(zebraYi, acmeQwen))
		time.Sleep(time.Minute)
		b := take(t, r, zebraGLM)
		time.Sleep(time.Minute)
		c := take(t, r, acmeGLM)

		slots := r.Slots(0)
		for i := range slots {
			slots[i].AcquiredAt = slots[i].AcquiredAt.Round(0).Local()
		}
		want := []inflight.SlotInfo{
			{
				ID: a.ID(), Key: acmeGLM, Also: []inflight.Key{zebraYi, acmeQwen}, Label: "first", Weight: 3,
				AcquiredAt: start, Held: 2 * time.Minute, LongHeld: true,
			},
			{ID: b.ID(), Key: zebraGLM, Weight: 1, AcquiredAt: start.Add(time.Minute), Held: time.Minute},
			{ID: c.ID(), Key: acmeGLM, Weight: 1, AcquiredAt: start.Add(2 * time.Minute)},
		}
		require.Equal(t, want, slots)
		require.Equal(t, 2*time.Minute, r.Stats().OldestHeld)
		for limit, n := range map[int]int{-1: 3, 1: 1, 2: 2, 3: 3, 4: 3, math.MaxInt: 3} {
			require.Equal(t, idsOf(want[:n]), idsOf(r.Slots(limit)), "at most %d", limit)
		}
		b.Release()
		require.Equal(t, []uint64{a.ID(), c.ID()}, idsOf(r.Slots(0)))
		a.Release()
		c.Release()
		requireEmpty(t, r)
	})
}

// Keys says how busy each live key is, the busiest first, then the most waited for, then by name.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := func(k inflight.Key) inflight.Limits { return inflight.Limits{Key: 10 * len(k.Model), Org: 25} }
		r := registryOf(t, inflight.Config{Limits: limits, SweepInterval: -1})
		require.Empty(t, r.Keys(0))
		slots := []*inflight.Slot{
			take(t, r, zebraYi),
			take(t, r, zebraGLM, inflight.Weight(8)),
			take(t, r, zebraGLM, inflight.Also(keyOf("b", "x"), keyOf("b", "a"), keyOf("a", "x"))),
			take(t, r, acmeQwen, inflight.Weight(0)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			//slotvet:ignore cancelled while it waits
			_, _ = r.Acquire(ctx, acmeGLM, inflight.Weight(7), inflight.Also(keyOf("b", "x")), inflight.Weight(10))
		}()
		synctest.Wait()

		want := []inflight.KeyInfo{
			{Key: zebraGLM, InUse: 9, Limit: 30, Holders: 2},
			{Key: keyOf("b", "x"), InUse: 1, Limit: 10, Holders: 1, Waiters: 1},
			{Key: keyOf("a", "x"), InUse: 1, Limit: 10, Holders: 1},
			{Key: keyOf("b", "a"), InUse: 1, Limit: 10, Holders: 1},
			{Key: zebraYi, InUse: 1, Limit: 20, Holders: 1},
			{Key: acmeGLM, InUse: 0, Limit: 30, Waiters: 1},
			{Key: acmeQwen, InUse: 0, Limit: 40, Holders: 1},
		}
		require.Equal(t, want, r.Keys(0))
		for limit, n := range map[int]int{-1: 7, 1: 1, 3: 3, 7: 7, 8: 7, math.MaxInt: 7} {
			require.Equal(t, want[:n], r.Keys(limit), "at most %d", limit)
		}
		cancel()
		synctest.Wait()
		require.Len(t, r.Keys(0), 6)
		releaseAll(slots)
		requireEmpty(t, r)
	})
}

// Limits are read for those keys only that are asked for.
func TestKeysReadsTheLimitsItShows(t *testing.T) {
	var reads atomic.Int32
	r := registryOf(t, inflight.Config{SweepInterval: -1, Limits: func(inflight.Key) inflight.Limits {
		reads.Add(1)
		return inflight.Limits{}
	}})
	for i := range 20 {
		defer take(t, r, keyOf("acme", strconv.Itoa(i))).Release()
	}
	reads.Store(0)
	require.Len(t, r.Keys(3), 3)
	require.EqualValues(t, 3, reads.Load())
}

func TestInUse(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	require.Zero(t, r.InUse(acmeGLM))
	s := take(t, r, acmeGLM, inflight.Weight(3), inflight.Also(zebraYi))
	require.Equal(t, []int{3, 3, 0}, []int{r.InUse(acmeGLM), r.InUse(zebraYi), r.InUse(acmeQwen)})
	require.Len(t, r.Keys(0), 2, "to ask does not make a key")
	s.Release()
	require.Zero(t, r.InUse(acmeGLM))
	requireEmpty(t, r)
}

// Cancel and Evict act on the slot with that id, whatever the number of others, and on none if it has ended.
func TestCancelAndEvict(t *testing.T) {
	for _, size := range []int{1, 127, 128, 129, 1000} {
		r := newRegistry(t, inflight.Limits{Key: inflight.Unlimited})
		var slots []*inflight.Slot
		contexts := make(map[uint64]context.Context)
		for range size {
			s := take(t, r, acmeGLM)
			slots = append(slots, s)
			contexts[s.ID()] = s.Context(t.Context()) //nolint:fatcontext // one for each, none of another
			requireLive(t, contexts[s.ID()])
		}
		require.False(t, r.Cancel(0, nil))
		require.False(t, r.Cancel(uint64(size)+1, nil))
		require.False(t, r.Evict(0))
		require.False(t, r.Evict(math.MaxUint64))
		for n, i := range []int{0, size / 2, size - 1} {
			id := slots[i].ID()
			if contexts[id].Err() != nil {
				continue // size is 1
			}
			require.True(t, r.Cancel(id, errOwn))
			require.True(t, r.Cancel(id, nil), "it is still there")
			requireEnded(t, contexts[id], errOwn)
			require.Equal(t, size-n, r.InUse(acmeGLM), "and counts")
			require.True(t, r.Evict(id))
			require.False(t, r.Evict(id))
			require.False(t, r.Cancel(id, nil))
			require.Equal(t, size-n-1, r.InUse(acmeGLM))
			slots[i].Release()
			require.Equal(t, size-n-1, r.InUse(acmeGLM))
		}
		ended := 0
		for _, ctx := range contexts {
			if ctx.Err() != nil {
				ended++
			}
		}
		require.Equal(t, min(size, 3), ended)
		slots[0].Release()
		releaseAll(slots)
		require.False(t, r.Evict(slots[size-1].ID()))
		requireEmpty(t, r)
		require.EqualValues(t, min(size, 3), r.Stats().Evicted)
	}
}

// To look leaves nothing behind.
func TestToLookLeavesNothing(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	defer take(t, r, acmeGLM).Release()
	before := heap()
	for range 20_000 {
		r.Slots(1)
		r.Keys(1)
		r.Waiters(1)
		r.Evict(0)
		r.Sweep()
	}
	require.Less(t, heap(), before+1<<19)
}

// Evict makes room at once, also while whoever was evicted goes on.
func TestEvictMakesRoom(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 1, Org: 1, Model: 1, Total: 1})
	s := take(t, r, acmeGLM, inflight.Also(acmeQwen))
	ctx := s.Context(t.Context())
	require.True(t, r.Evict(s.ID()))
	requireEnded(t, ctx, inflight.ErrEvicted)
	other := take(t, r, acmeQwen)
	s.Release()
	refuses(t, r, acmeGLM)
	require.Equal(t, inflight.ErrEvicted, context.Cause(ctx))
	other.Release()
	requireEmpty(t, r)
}
