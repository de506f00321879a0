package inflight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// The faults that people who wait for room have reported, each under the name it is known by.
func TestWaitingCases(t *testing.T) {
	t.Run("wait-cancelled-head", waitCancelledHead)
	t.Run("wait-dead-ctx", waitDeadCtx)
	t.Run("wait-race", waitRace)
	t.Run("wait-too-big", waitTooBig)
	t.Run("wait-bound", waitBound)
	t.Run("wait-queue-full", waitQueueFull)
	t.Run("wait-close", waitClose)
	t.Run("wait-reserve-nothing", waitReserveNothing)
}

func waitCancelledHead(t *testing.T) {
	inQueueTest(t, perKey(2), func(q *queueTest) {
		held := q.take(acmeGLM)
		big := q.queue(acmeGLM, inflight.Weight(2))
		small := q.queue(acmeGLM)

		big.giveUp()
		small.granted().Release()
		held.Release()
		q.empty()
	})
}

func waitDeadCtx(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		for range 500 {
			for _, ctx := range []context.Context{canceled, expired} {
				s, err := q.Acquire(ctx, acmeGLM)
				require.Nil(t, s)
				require.Equal(t, ctx.Err(), err) // the error itself, not one that wraps it
			}
		}
		q.empty()
		require.EqualValues(t, 1000, q.Stats().Canceled)
		require.Zero(t, q.Stats().Admitted)
	})
}

func waitTooBig(t *testing.T) {
	limits := map[inflight.Scope]inflight.Limits{
		inflight.ScopeKey:   {Key: 2},
		inflight.ScopeOrg:   {Org: 2},
		inflight.ScopeModel: {Model: 2},
		inflight.ScopeTotal: {Total: 2},
	}
	for scope, l := range limits {
		t.Run(scope.String(), func(t *testing.T) {
			inQueueTest(t, inflight.Fixed(l), func(q *queueTest) {
				t := q.t
				s, err := q.Acquire(context.Background(), acmeGLM, inflight.Weight(3))
				require.Nil(t, s)
				e := asLimitError(t, err)
				require.Equal(t, []any{acmeGLM, scope, 0, 2, 3, 0}, fields(e))
				require.NotErrorIs(t, err, inflight.ErrTooManyWaiters)
				q.empty()
				require.EqualValues(t, 1, q.Stats().Rejected[scope].TooHeavy)
			})
		})
	}

	t.Run("before waiting anywhere", func(t *testing.T) {
		limits := inflight.Fixed(inflight.Limits{Key: 5, Total: 2})
		inQueueTest(t, limits, func(q *queueTest) {
			t := q.t
			held := q.take(acmeGLM)
			waiter := q.queue(zebraYi, inflight.Weight(2))

			// The key's limit has room now and the total has none, but 3 never fits into the total.
			e := asLimitError(t, q.acquire(acmeGLM, inflight.Weight(3)).failed())
			require.Equal(t, []any{acmeGLM, inflight.ScopeTotal, 1, 2, 3, 1}, fields(e))

			held.Release()
			waiter.granted().Release()
			q.empty()
		})
	})
}

// fields are those of the error, in the order of the struct.
func fields(e *inflight.LimitError) []any {
	return []any{e.Key, e.Scope, e.InUse, e.Limit, e.Weight, e.Waiters}
}

func waitBound(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()

		start := time.Now()
		_, err := q.Acquire(ctx, acmeGLM, inflight.MaxWait(50*time.Millisecond))
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		e := asLimitError(t, err)
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 1, 1}, fields(e)[:5])
		require.NotErrorIs(t, err, inflight.ErrTooManyWaiters)
		require.EqualValues(t, 1, q.Stats().Rejected[inflight.ScopeKey].TimedOut)

		// Whichever bound is nearer ends the wait, and says so in its own way.
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err = q.Acquire(ctx, acmeGLM, inflight.MaxWait(time.Hour))
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		require.Equal(t, context.DeadlineExceeded, err) // *url.Error asks the error itself for Timeout

		held.Release()
		q.empty()
	})
}

func TestMaxWait(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		q.acquire(acmeGLM, inflight.MaxWait(0)).granted().Release()
		q.acquire(acmeGLM, inflight.MaxWait(-time.Second)).granted().Release()

		held := q.take(acmeGLM)
		for _, d := range []time.Duration{0, -1, -time.Hour} {
			start := time.Now()
			_, err := q.Acquire(t.Context(), acmeGLM, inflight.MaxWait(d))
			require.Zero(t, time.Since(start))
			require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 1, 1, 0}, fields(asLimitError(t, err)))
			require.NotErrorIs(t, err, inflight.ErrTooManyWaiters)
		}
		require.EqualValues(t, 3, q.Stats().Rejected[inflight.ScopeKey].Full)
		require.Zero(t, q.Stats().Waited)

		// TryAcquire does not wait, whatever MaxWait says.
		start := time.Now()
		q.refuses(acmeGLM, inflight.MaxWait(time.Hour))
		require.Zero(t, time.Since(start))

		// A bound does not bother a waiter that was let in before.
		a := q.queue(acmeGLM, inflight.MaxWait(time.Minute))
		time.Sleep(time.Minute - 1)
		held.Release()
		s := a.granted()
		time.Sleep(time.Hour)
		require.Equal(t, 1, q.InUse(acmeGLM))
		s.Release()
		q.empty()
	})
}

// A waiter that has run out of time wakes those it held back, as one that is cancelled does.
func TestExpiredHeadLetsOthersIn(t *testing.T) {
	inQueueTest(t, perKey(2), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		big := q.queue(acmeGLM, inflight.Weight(2), inflight.MaxWait(time.Second))
		small := q.queue(acmeGLM)
		time.Sleep(time.Second)
		require.ErrorIs(t, big.failed(), inflight.ErrLimit)
		small.granted().Release()
		held.Release()
		q.empty()
	})
}

func waitClose(t *testing.T) {
	ends := map[string]func(*queueTest) error{
		"Close":    func(q *queueTest) error { return q.Close() },
		"Shutdown": func(q *queueTest) error { return q.Shutdown(q.t.Context()) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inQueueTestOf(t, inflight.Config{Limits: perKey(1), MaxWaitersPerKey: -1}, func(q *queueTest) {
				t := q.t
				held := q.take(acmeGLM)
				var waiters []*queued
				for range 100 {
					waiters = append(waiters, q.start(t.Context(), acmeGLM))
				}
				synctest.Wait()
				require.Equal(t, 100, q.Stats().Waiters)

				ended := make(chan error, 1)
				go func() { ended <- end(q) }()
				for _, a := range waiters {
					require.ErrorIs(t, a.failed(), inflight.ErrClosed)
				}
				require.Empty(t, q.Waiters(0))
				require.Equal(t, 1, q.InUse(acmeGLM), "the holder still counts")
				require.EqualValues(t, 100, q.Stats().Closed)
				require.EqualValues(t, 100, q.Stats().Waited)

				require.ErrorIs(t, q.acquire(acmeGLM).failed(), inflight.ErrClosed)
				require.ErrorIs(t, q.acquire(zebraYi).failed(), inflight.ErrClosed, "also where there is room")
				held.Release()
				require.NoError(t, <-ended)
				q.empty()
			})
		})
	}
}

func waitReserveNothing(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		a := q.take(acmeGLM)
		both := q.queue(acmeGLM, inflight.Also(zebraYi))

		b := q.take(zebraYi)
		a.Release() // the waiter moves on, to wait for the other key, and holds none meanwhile
		require.True(t, both.waits())
		require.Zero(t, q.InUse(acmeGLM))
		q.take(acmeGLM).Release()

		b.Release()
		s := both.granted()
		require.Equal(t, 1, q.InUse(acmeGLM))
		require.Equal(t, 1, q.InUse(zebraYi))
		s.Release()
		q.empty()
	})
}

// A waiter at one limit holds nobody back at another that it needs too, and TryAcquire may use what is free there.
func TestWaiterReservesNoTotal(t *testing.T) {
	inQueueTest(t, inflight.Fixed(inflight.Limits{Key: 1, Total: 2}), func(q *queueTest) {
		held := q.take(acmeGLM)
		a := q.queue(acmeGLM)
		other := q.take(zebraYi)
		held.Release()
		a.granted().Release()
		other.Release()
		q.empty()
	})
}

// A key is live while somebody only waits for it, and is gone when they are.
func TestKeyLivesWithItsWaiters(t *testing.T) {
	inQueueTest(t, inflight.Fixed(inflight.Limits{Total: 1}), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		a := q.queue(zebraYi, inflight.Also(zebraGLM))
		b := q.queue(zebraYi)
		require.Equal(t, []inflight.KeyInfo{
			{Key: acmeGLM, InUse: 1, Limit: inflight.DefaultKeyLimit, Holders: 1},
			{Key: zebraYi, Limit: inflight.DefaultKeyLimit, Waiters: 2},
			{Key: zebraGLM, Limit: inflight.DefaultKeyLimit, Waiters: 1},
		}, q.Keys(0))
		require.Equal(t, 3, q.Stats().Keys)
		require.Zero(t, q.InUse(zebraYi))

		a.giveUp()
		require.Equal(t, 2, q.Stats().Keys)
		b.giveUp()
		require.Equal(t, 1, q.Stats().Keys)
		held.Release()
		q.empty()
	})
}
