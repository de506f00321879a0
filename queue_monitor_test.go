package inflight_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Waiters are listed in the order in which they came, with what they wait for and where.
func TestWaitersAreListed(t *testing.T) {
	limits := inflight.Fixed(inflight.Limits{Key: 2, Org: 3, Model: 4, Total: 5})
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		require.Empty(t, q.Waiters(0))
		held := []*inflight.Slot{
			q.take(acmeGLM, inflight.Weight(2)), q.take(acmeQwen), q.take(zebraGLM, inflight.Weight(2)),
		}
		start := time.Now()
		nadir := func(model string) inflight.Key { return inflight.Key{Org: "nadir", Model: model} }
		waits := []struct {
			key     inflight.Key
			opts    []inflight.Option
			blocked inflight.Scope
		}{
			{nadir("yi"), []inflight.Option{inflight.Label("first")}, inflight.ScopeTotal},
			{nadir("glm"), []inflight.Option{inflight.Weight(0), inflight.Label("second")}, inflight.ScopeTotal},
			{nadir("glm"), []inflight.Option{inflight.Weight(1), inflight.Label("third")}, inflight.ScopeModel},
			{inflight.Key{Org: "acme", Model: "yi"}, nil, inflight.ScopeOrg},
			{acmeGLM, []inflight.Option{inflight.Weight(2)}, inflight.ScopeKey},
			{nadir("none"), []inflight.Option{inflight.Also(zebraGLM)}, inflight.ScopeTotal},
		}
		var want []inflight.WaiterInfo
		var waiters []*queued
		labels, weights := []string{"first", "second", "third", "", "", ""}, []int{1, 0, 1, 1, 2, 1}
		for i, w := range waits {
			waiters = append(waiters, q.queue(w.key, w.opts...))
			want = append(want, inflight.WaiterInfo{
				Key: w.key, Label: labels[i], Weight: weights[i], Since: start.Add(time.Duration(i) * time.Second), Blocked: w.blocked,
			})
			time.Sleep(time.Second)
		}
		got := q.Waiters(0)
		for i := range got {
			require.True(t, want[i].Since.Equal(got[i].Since), "%v: since %v, not %v", i, got[i].Since, want[i].Since)
			got[i].Since = want[i].Since
		}
		require.Equal(t, want, got)
		for limit, n := range map[int]int{-1: 6, 0: 6, 1: 1, 4: 4, 6: 6, 7: 6} {
			require.Len(t, q.Waiters(limit), n)
			require.Equal(t, "first", q.Waiters(limit)[0].Label)
		}

		waiters[0].giveUp()
		for _, a := range waiters {
			a.cancel()
		}
		for _, a := range waiters {
			if !a.waits() && a.err == nil {
				a.slot.Release() // what a cancelled one held back
			}
		}
		for _, s := range held {
			s.Release()
		}
		q.empty()
	})
}

// Each wait counts once when it has ended, granted or not, with its time; who need not wait is not counted.
func TestWaitsInStats(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		held := q.acquire(acmeGLM).granted()
		q.refuses(acmeGLM)
		require.ErrorIs(t, q.acquire(acmeGLM, inflight.MaxWait(0)).failed(), inflight.ErrLimit)
		require.Zero(t, q.Stats().Wait.Count())

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		expires := q.acquireCtx(ctx, acmeGLM)                                             // 2 s
		times := q.queue(acmeGLM, inflight.MaxWait(3*time.Second))                        // 3 s
		granted, canceled, closed := q.queue(acmeGLM), q.queue(acmeGLM), q.queue(acmeGLM) // 4 s, 5 s, 6 s
		require.Equal(t, 5, q.Stats().Waiters)
		require.Zero(t, q.Stats().Waited)

		time.Sleep(2 * time.Second)
		require.ErrorIs(t, expires.failed(), context.DeadlineExceeded)
		require.Equal(t, 4, q.Stats().Waiters)
		time.Sleep(time.Second)
		require.ErrorIs(t, times.failed(), inflight.ErrLimit)
		time.Sleep(time.Second)
		held.Release()
		s := granted.granted()
		time.Sleep(time.Second)
		canceled.giveUp()
		time.Sleep(time.Second)
		require.NoError(t, q.Close())
		require.ErrorIs(t, closed.failed(), inflight.ErrClosed)

		stats := q.Stats()
		require.Zero(t, stats.Waiters)
		require.EqualValues(t, 5, stats.Waited)
		require.EqualValues(t, 5, stats.Wait.Count())
		require.InDelta(t, 2.+3+4+5+6, stats.Wait.Sum, 1e-9)
		for i, bound := range stats.Wait.Bounds {
			require.Equal(t, map[float64]uint64{2: 1, 4: 2, 8: 2}[bound], stats.Wait.Counts[i], "up to %v s", bound)
		}
		require.EqualValues(t, 2, stats.Canceled)
		require.EqualValues(t, 1, stats.Closed)
		require.EqualValues(t, 1, stats.Rejected[inflight.ScopeKey].TimedOut)
		require.EqualValues(t, 2, stats.Rejected[inflight.ScopeKey].Full)
		require.EqualValues(t, 2, stats.Admitted)
		s.Release()
		q.empty()
	})
}

func TestSweepReportsWaiters(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		require.Zero(t, q.Sweep().LongestWait)
		held := q.take(acmeGLM)
		old := q.queue(acmeGLM)
		time.Sleep(time.Minute)
		young := q.queue(acmeGLM, inflight.Also(zebraYi))
		time.Sleep(time.Second)

		rep := q.Sweep()
		require.Equal(t, 2, rep.Waiters)
		require.Equal(t, time.Minute+time.Second, rep.LongestWait)
		require.Equal(t, 2, rep.Keys)
		require.Equal(t, inflight.KeyInfo{Key: acmeGLM, InUse: 1, Limit: 1, Holders: 1, Waiters: 2}, rep.Busiest)
		old.giveUp()
		require.Equal(t, time.Second, q.Sweep().LongestWait)
		held.Release()
		young.granted().Release()
		require.Zero(t, q.Sweep().LongestWait)
		q.empty()
	})
}

// A slot is as old as its grant, not as its acquire.
func TestSlotOfAWaiterIsAsOldAsItsGrant(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		a := q.queue(acmeGLM, inflight.Label("req-7"), inflight.Weight(1))
		time.Sleep(time.Minute)
		held.Release()
		granted := time.Now()
		s := a.granted()
		require.True(t, granted.Equal(s.AcquiredAt()))
		require.Equal(t, "req-7", s.Label())
		require.Equal(t, acmeGLM, s.Key())
		time.Sleep(time.Second)
		require.Equal(t, time.Second, q.Slots(0)[0].Held)
		s.Release()
		q.empty()
	})
}
