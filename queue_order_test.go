package inflight_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Order means the order of grant, which IDs tell: they grow with each slot that is handed out.

func TestFirstComeFirstServed(t *testing.T) {
	limits := map[inflight.Scope]inflight.Limits{
		inflight.ScopeKey:   {Key: 1},
		inflight.ScopeOrg:   {Org: 1},
		inflight.ScopeModel: {Model: 1},
		inflight.ScopeTotal: {Total: 1},
	}
	for scope, l := range limits {
		t.Run(scope.String(), func(t *testing.T) {
			inQueueTest(t, inflight.Fixed(l), func(q *queueTest) {
				t := q.t
				held := q.take(acmeGLM)
				var waiters []*queued
				for range 5 {
					waiters = append(waiters, q.queue(acmeGLM))
				}
				for _, scopeAt := range q.blockedAt() {
					require.Equal(t, scope, scopeAt)
				}
				for i, a := range waiters {
					id := held.ID()
					held.Release()
					held = a.granted()
					require.Greater(t, held.ID(), id)
					for _, later := range waiters[i+1:] {
						require.True(t, later.waits())
					}
				}
				held.Release()
				q.empty()
			})
		})
	}
}

// One release lets in as many as fit, in order, at one stroke.
func TestOneReleaseLetsInAsManyAsFit(t *testing.T) {
	inQueueTest(t, perKey(4), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM, inflight.Weight(4))
		var waiters []*queued
		for _, weight := range []int{1, 0, 2, 1, 0, 1} {
			waiters = append(waiters, q.queue(acmeGLM, inflight.Weight(weight)))
		}
		held.Release()
		last := held.ID()
		for _, a := range waiters[:5] {
			s := a.granted()
			require.Greater(t, s.ID(), last)
			last = s.ID()
		}
		require.Equal(t, 4, q.InUse(acmeGLM))
		require.True(t, waiters[5].waits())
		for _, a := range waiters[:5] {
			a.slot.Release()
		}
		waiters[5].granted().Release()
		q.empty()
	})
}

// A heavy waiter at the head holds back lighter ones for which there would be room, so it cannot starve; neither
// Acquire nor TryAcquire gets past it.
func TestBigHeadHoldsBackSmaller(t *testing.T) {
	inQueueTest(t, perKey(3), func(q *queueTest) {
		t := q.t
		a, b := q.take(acmeGLM), q.take(acmeGLM)
		big := q.queue(acmeGLM, inflight.Weight(3))
		small := q.queue(acmeGLM)
		e := q.refused(acmeGLM)
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 2, 3, 1, 2}, fields(e))
		q.refuses(acmeGLM, inflight.Weight(0))

		a.Release()
		require.True(t, big.waits())
		require.True(t, small.waits())
		b.Release()
		s := big.granted()
		require.True(t, small.waits())
		s.Release()
		small.granted().Release()
		q.empty()
	})
}

// TryAcquire gets past nobody who waits for a limit that it needs, of whatever scope, and past those who wait for others.
func TestTryAcquireDoesNotOvertake(t *testing.T) {
	limits := inflight.Limits{Key: 2, Org: 2, Model: 2, Total: 2}
	heavy := inflight.Weight(2)
	tests := map[string]struct {
		limits inflight.Limits
		waits  inflight.Key // with weight 2, while acmeGLM has 1
		tries  inflight.Key
		opts   []inflight.Option
		scope  inflight.Scope
	}{
		"key":   {inflight.Limits{Key: limits.Key}, acmeGLM, acmeGLM, nil, inflight.ScopeKey},
		"org":   {inflight.Limits{Org: limits.Org}, acmeQwen, acmeGLM, nil, inflight.ScopeOrg},
		"model": {inflight.Limits{Model: limits.Model}, zebraGLM, acmeGLM, nil, inflight.ScopeModel},
		"total": {inflight.Limits{Total: limits.Total}, zebraYi, acmeQwen, nil, inflight.ScopeTotal},
		"also": {
			inflight.Limits{Key: limits.Key},
			acmeGLM, zebraYi,
			[]inflight.Option{inflight.Also(acmeQwen, acmeGLM)},
			inflight.ScopeKey,
		},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			inQueueTest(t, inflight.Fixed(x.limits), func(q *queueTest) {
				t := q.t
				held := q.take(acmeGLM)
				waiter := q.queue(x.waits, heavy)
				e := q.refused(x.tries, x.opts...)
				require.Equal(t, x.scope, e.Scope)
				require.Equal(t, 1, e.InUse)
				require.Equal(t, 1, e.Waiters)

				held.Release()
				waiter.granted().Release()
				q.take(x.tries, x.opts...).Release()
				q.empty()
			})
		})
	}
}

// Those who have no limit at some scope are not held back by those who wait for theirs.
func TestUnlimitedNeedNotQueue(t *testing.T) {
	limits := func(k inflight.Key) inflight.Limits {
		if k.Org == "zebra" {
			return inflight.Limits{Key: 5, Model: inflight.Unlimited}
		}
		return inflight.Limits{Key: 5, Model: 1, Total: 1}
	}
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		atModel, atTotal := q.queue(acmeGLM), q.queue(acmeQwen)
		require.Equal(t, []inflight.Scope{inflight.ScopeModel, inflight.ScopeTotal}, q.blockedAt())

		q.take(zebraGLM).Release()
		q.acquire(zebraGLM).granted().Release()
		held.Release()
		atModel.granted().Release()
		atTotal.granted().Release()
		q.empty()
	})
}

// A waiter that one limit lets past and another stops waits there, with its place in time: before those who came to
// that limit earlier but to the registry later.
func TestMovingOnKeepsThePlaceInTime(t *testing.T) {
	inQueueTest(t, inflight.Fixed(inflight.Limits{Key: 1, Org: 2, Total: 3}), func(q *queueTest) {
		t := q.t
		glm, qwen := q.take(acmeGLM), q.take(acmeQwen)
		yi := q.take(zebraYi)

		first := q.queue(acmeGLM)
		second := q.queue(inflight.Key{Org: "acme", Model: "yi"})
		third := q.queue(inflight.Key{Org: "nadir", Model: "glm"})
		require.Equal(t, []inflight.Scope{inflight.ScopeKey, inflight.ScopeOrg, inflight.ScopeTotal}, q.blockedAt())

		// The total has room again, and the first is past its key; but it and the second are of one org, which has room
		// for one of them. The first goes in, for it came first.
		glm.Release()
		slot := first.granted()
		require.Equal(t, []inflight.Scope{inflight.ScopeOrg, inflight.ScopeTotal}, q.blockedAt())

		// An org's release lets the second past the org, to the total, where the third was before it and came later.
		qwen.Release()
		require.Greater(t, second.granted().ID(), slot.ID())
		require.True(t, third.waits())

		yi.Release()
		third.granted().Release()
		second.slot.Release()
		slot.Release()
		q.empty()
	})
}

// The same, where the limit it comes to is full: it queues there before those who came later.
func TestMovingOnToAFullLimit(t *testing.T) {
	total := 2
	limits := func(k inflight.Key) inflight.Limits {
		if k == acmeGLM {
			return inflight.Limits{Key: 1, Total: total}
		}
		return inflight.Limits{Total: total}
	}
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		key, other := q.take(acmeGLM), q.take(zebraYi)
		old, young := q.queue(acmeGLM), q.queue(zebraYi)
		require.Equal(t, []inflight.Scope{inflight.ScopeKey, inflight.ScopeTotal}, q.blockedAt())

		total = 1
		q.LimitsChanged()
		key.Release()
		require.Equal(t, []inflight.Scope{inflight.ScopeTotal, inflight.ScopeTotal}, q.blockedAt())
		other.Release()
		s := old.granted()
		require.True(t, young.waits(), "though it was the first at the total")
		s.Release()
		young.granted().Release()
		q.empty()
	})
}

// Whoever leaves, for whatever reason, makes way for those that only it held back, at every limit.
func TestLeavingMakesWay(t *testing.T) {
	limits := inflight.Limits{Key: 10, Org: 10, Model: 10, Total: 2}
	inQueueTest(t, inflight.Fixed(limits), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		big := q.queue(acmeQwen, inflight.Weight(2))
		bigger := q.queue(zebraGLM, inflight.Weight(2))
		small := q.queue(zebraYi)
		none := q.queue(acmeGLM, inflight.Weight(0))

		bigger.giveUp() // not the head: nobody may go yet
		require.True(t, small.waits())
		big.giveUp()
		require.Greater(t, none.granted().ID(), small.granted().ID())

		small.slot.Release()
		none.slot.Release()
		held.Release()
		q.empty()
	})
}

// Those whom a leaver held back may in turn be stopped elsewhere, and let others past.
func TestLeavingMovesOthersOn(t *testing.T) {
	inQueueTest(t, inflight.Fixed(inflight.Limits{Key: 2, Total: 3}), func(q *queueTest) {
		t := q.t
		key, rest := q.take(acmeGLM), q.take(zebraYi, inflight.Weight(2))
		big := q.queue(acmeGLM, inflight.Weight(2))
		next := q.queue(acmeGLM)
		free := q.queue(acmeGLM, inflight.Weight(0))
		require.Equal(t, []inflight.Scope{0, 0, 0}, q.blockedAt())

		big.giveUp()
		require.Equal(t, []inflight.Scope{inflight.ScopeTotal, inflight.ScopeTotal}, q.blockedAt())
		rest.Release()
		require.Greater(t, free.granted().ID(), next.granted().ID())

		for _, s := range []*inflight.Slot{key, next.slot, free.slot} {
			s.Release()
		}
		q.empty()
	})
}

// Every way in which a slot ends lets waiters in.
func TestEveryEndOfASlotLetsWaitersIn(t *testing.T) {
	ends := map[string]func(*queueTest, *inflight.Slot){
		"Release": func(_ *queueTest, s *inflight.Slot) { s.Release() },
		"Evict":   func(q *queueTest, s *inflight.Slot) { require.True(q.t, q.Evict(s.ID())) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inQueueTest(t, perKey(1), func(q *queueTest) {
				t := q.t
				held := q.take(acmeGLM)
				first, second := q.queue(acmeGLM), q.queue(acmeGLM)
				end(q, held)
				s := first.granted()
				held.Release() // late: lets nobody in
				require.True(t, second.waits())
				require.Equal(t, 1, q.InUse(acmeGLM))
				end(q, s)
				end(q, second.granted())
				q.empty()
			})
		})
	}
}

// Cancelling a slot's context frees nothing, and so lets nobody in.
func TestCancelledSlotStillHoldsWaitersBack(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		a := q.queue(acmeGLM)
		require.True(t, q.Cancel(held.ID(), nil))
		synctest.Wait()
		require.True(t, a.waits())
		held.Release()
		a.granted().Release()
		q.empty()
	})
}
