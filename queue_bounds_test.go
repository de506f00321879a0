package inflight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Whichever limit a waiter is queued at, and however it asks, it counts against MaxWaiters and is refused by it.
func waitQueueFull(t *testing.T) {
	type path struct {
		limits inflight.Limits
		key    inflight.Key // held already: acmeGLM
		opts   []inflight.Option
		scope  inflight.Scope
	}
	paths := map[string]path{
		"key":      {inflight.Limits{Key: 1}, acmeGLM, nil, inflight.ScopeKey},
		"org":      {inflight.Limits{Org: 1}, acmeQwen, nil, inflight.ScopeOrg},
		"model":    {inflight.Limits{Model: 1}, zebraGLM, nil, inflight.ScopeModel},
		"total":    {inflight.Limits{Total: 1}, zebraYi, nil, inflight.ScopeTotal},
		"also":     {inflight.Limits{Key: 1}, zebraYi, []inflight.Option{inflight.Also(acmeGLM)}, inflight.ScopeKey},
		"max wait": {inflight.Limits{Key: 1}, acmeGLM, []inflight.Option{inflight.MaxWait(time.Hour)}, inflight.ScopeKey},
	}
	for name, p := range paths {
		t.Run(name, func(t *testing.T) {
			cfg := inflight.Config{Limits: inflight.Fixed(p.limits), MaxWaiters: 2, MaxWaitersPerKey: -1}
			inQueueTestOf(t, cfg, func(q *queueTest) {
				t := q.t
				held := q.take(acmeGLM)
				first, second := q.queue(acmeGLM), q.queue(acmeGLM)

				err := q.acquire(p.key, p.opts...).failed()
				require.ErrorIs(t, err, inflight.ErrTooManyWaiters)
				e := asLimitError(t, err)
				require.Equal(t, p.scope, e.Scope)
				require.Equal(t, 1, e.InUse)
				require.Equal(t, 1, e.Limit)
				require.Equal(t, 2, e.Waiters)
				require.Equal(t, 2, q.Stats().Waiters)
				require.EqualValues(t, 1, q.Stats().Rejected[p.scope].QueueFull)

				// Whoever leaves the queue, let in or not, makes room in it.
				first.giveUp()
				third := q.queue(p.key, p.opts...)
				held.Release()
				held = second.granted()
				fourth := q.queue(acmeGLM)
				require.ErrorIs(t, q.acquire(p.key, p.opts...).failed(), inflight.ErrTooManyWaiters)

				third.giveUp()
				fourth.giveUp()
				held.Release()
				q.empty()
			})
		})
	}
}

// Those who are refused or let in at once are not told of a full queue.
func TestFullQueueStopsOnlyThoseWhoWouldWait(t *testing.T) {
	cfg := inflight.Config{Limits: perKey(1), MaxWaiters: 1}
	inQueueTestOf(t, cfg, func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		waiter := q.queue(acmeGLM)

		q.acquire(zebraYi).granted().Release()
		require.NotErrorIs(t, q.refused(acmeGLM), inflight.ErrTooManyWaiters)
		require.NotErrorIs(t, q.acquire(acmeGLM, inflight.MaxWait(0)).failed(), inflight.ErrTooManyWaiters)
		require.NotErrorIs(t, q.acquire(acmeGLM, inflight.Weight(2)).failed(), inflight.ErrTooManyWaiters)
		require.ErrorIs(t, q.acquire(acmeGLM).failed(), inflight.ErrTooManyWaiters)
		require.ErrorIs(t, q.acquire(acmeGLM, inflight.Weight(0)).failed(), inflight.ErrTooManyWaiters,
			"it would fit, but may not overtake")

		waiter.giveUp()
		held.Release()
		q.empty()
	})
}

func TestMaxWaitersPerKey(t *testing.T) {
	cfg := inflight.Config{Limits: inflight.Fixed(inflight.Limits{Total: 1}), MaxWaitersPerKey: 2}
	inQueueTestOf(t, cfg, func(q *queueTest) {
		t := q.t
		held := q.take(acmeQwen)
		waiters := []*queued{q.queue(acmeGLM), q.queue(zebraYi, inflight.Also(acmeGLM))}

		e := asLimitError(t, q.acquire(acmeGLM).failed())
		require.ErrorIs(t, e, inflight.ErrTooManyWaiters)
		require.Equal(t, []any{acmeGLM, inflight.ScopeTotal, 1, 1, 1, 2}, fields(e))
		require.ErrorIs(t, q.acquire(acmeQwen, inflight.Also(acmeGLM)).failed(), inflight.ErrTooManyWaiters,
			"a key asked for by Also counts as any other")

		waiters = append(waiters, q.queue(zebraYi), q.queue(acmeQwen)) // other keys have queues of their own
		waiters[0].giveUp()
		waiters[0] = q.queue(acmeGLM)
		for _, a := range waiters {
			a.giveUp()
		}
		held.Release()
		q.empty()
	})
}

func TestMaxWaitersDefaults(t *testing.T) {
	fill := func(t *testing.T, cfg inflight.Config, keys, each int) {
		t.Helper()
		cfg.Limits = inflight.Fixed(inflight.Limits{Total: 1})
		inQueueTestOf(t, cfg, func(q *queueTest) {
			t := q.t
			held := q.take(acmeGLM)
			var waiters []*queued
			for i := range keys {
				for range each {
					waiters = append(waiters, q.start(t.Context(), inflight.Key{Org: "o", Model: string(rune('a' + i))}))
				}
			}
			for _, a := range waiters {
				require.True(t, a.waits())
			}
			require.ErrorIs(t, q.acquire(inflight.Key{Org: "o", Model: "a"}).failed(), inflight.ErrTooManyWaiters)
			for _, a := range waiters {
				a.cancel()
			}
			held.Release()
			q.empty()
		})
	}
	t.Run("64 per key", func(t *testing.T) { fill(t, inflight.Config{}, 1, 64) })
	t.Run("1024", func(t *testing.T) { fill(t, inflight.Config{MaxWaitersPerKey: 65}, 16, 64) })
	t.Run("negative per key: no bound of its own", func(t *testing.T) {
		fill(t, inflight.Config{MaxWaitersPerKey: -1}, 1, 1024)
	})
}

// A registry without a queue refuses as if TryAcquire had been called.
func TestNegativeMaxWaiters(t *testing.T) {
	inQueueTestOf(t, inflight.Config{Limits: perKey(1), MaxWaiters: -1}, func(q *queueTest) {
		t := q.t
		held := q.acquire(acmeGLM).granted()
		err := q.acquire(acmeGLM).failed()
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 1, 1, 0}, fields(asLimitError(t, err)))
		require.NotErrorIs(t, err, inflight.ErrTooManyWaiters)
		require.EqualValues(t, 1, q.Stats().Rejected[inflight.ScopeKey].Full)
		held.Release()
		q.empty()
	})
}
