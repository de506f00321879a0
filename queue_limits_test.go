package inflight_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// The faults that people have reported of limits that change, each under the name it is known by.
func TestLimitChangeCases(t *testing.T) {
	t.Run("shrink", shrink)
	t.Run("grow", grow)
	t.Run("limit-func-fails", limitFuncFails)
	t.Run("late-limit", lateLimit)
}

// A dial is a limit function that tests turn.
type dial struct {
	at atomic.Pointer[inflight.Limits]
}

func newDial(l inflight.Limits) *dial {
	d := &dial{}
	d.set(l)
	return d
}

func (d *dial) set(l inflight.Limits)               { d.at.Store(&l) }
func (d *dial) limits(inflight.Key) inflight.Limits { return *d.at.Load() }

func shrink(t *testing.T) {
	d := newDial(inflight.Limits{Key: 3})
	inQueueTest(t, d.limits, func(q *queueTest) {
		t := q.t
		held := []*inflight.Slot{q.take(acmeGLM), q.take(acmeGLM), q.take(acmeGLM)}
		a := q.queue(acmeGLM)
		d.set(inflight.Limits{Key: 2})
		q.LimitsChanged()
		require.Equal(t, 3, q.InUse(acmeGLM), "nobody is evicted")
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 3, 2, 1, 1}, fields(q.refused(acmeGLM)))
		q.refuses(zebraYi, inflight.Also(acmeGLM), inflight.Weight(0)) // above its limit it admits no weight at all

		held[0].Release()
		require.True(t, a.waits(), "two of two are in use")
		held[1].Release()
		a.granted().Release()
		q.take(acmeGLM).Release()
		held[2].Release()
		q.empty()
	})
}

func grow(t *testing.T) {
	d := newDial(inflight.Limits{Key: 1})
	inQueueTest(t, d.limits, func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		first, second, third := q.queue(acmeGLM), q.queue(acmeGLM), q.queue(acmeGLM)
		d.set(inflight.Limits{Key: 3})
		require.True(t, first.waits(), "nobody has said so yet")

		q.LimitsChanged()
		require.Less(t, first.granted().ID(), second.granted().ID())
		require.True(t, third.waits())
		require.Equal(t, 3, q.InUse(acmeGLM))

		held.Release()
		third.granted().Release()
		first.slot.Release()
		second.slot.Release()
		q.empty()
	})
}

func limitFuncFails(t *testing.T) {
	fails := false
	limits := func(inflight.Key) inflight.Limits {
		if fails {
			panic("no limits")
		}
		return inflight.Limits{Key: 1}
	}
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		fails = true
		require.PanicsWithValue(t, "no limits", func() { _, _ = q.TryAcquire(zebraYi) }) //slotvet:ignore it panics
		require.Equal(t, "no limits", q.acquire(zebraYi).panicked)
		require.Equal(t, "no limits", q.acquire(acmeGLM).panicked)
		require.Equal(t, 1, q.Stats().Keys)
		require.Zero(t, q.Stats().Waiters)
		held.Release()
		q.empty()
		fails = false
		q.take(acmeGLM).Release()
	})
}

func lateLimit(t *testing.T) {
	tests := map[inflight.Scope]struct {
		limits inflight.Limits
		other  inflight.Key // bound by the same limit
	}{
		inflight.ScopeOrg:   {inflight.Limits{Org: 6}, acmeQwen},
		inflight.ScopeModel: {inflight.Limits{Model: 6}, zebraGLM},
		inflight.ScopeTotal: {inflight.Limits{Total: 6}, zebraYi},
	}
	for scope, x := range tests {
		t.Run(scope.String(), func(t *testing.T) {
			d := newDial(inflight.Limits{})
			inQueueTest(t, d.limits, func(q *queueTest) {
				t := q.t
				held := []*inflight.Slot{q.take(acmeGLM, inflight.Weight(2)), q.take(acmeGLM, inflight.Weight(3))}
				d.set(x.limits)
				held = append(held, q.take(x.other))
				require.Equal(t, []any{acmeGLM, scope, 6, 6, 1, 0}, fields(q.refused(acmeGLM)))
				a := q.queue(x.other, inflight.Weight(2))
				require.Equal(t, []inflight.Scope{scope}, q.blockedAt())
				held[0].Release()
				held = append(held[1:], a.granted())
				for _, s := range held {
					s.Release()
				}
				q.empty()
			})
		})
	}
}

// A limit that is set while somebody waits counts those who hold and those who wait, of which it may have more.
func TestLateLimitForWaiters(t *testing.T) {
	d := newDial(inflight.Limits{Key: 1})
	inQueueTest(t, d.limits, func(q *queueTest) {
		t := q.t
		glm, qwen, yi := q.take(acmeGLM), q.take(acmeQwen), q.take(zebraYi)
		waiters := []*queued{q.queue(acmeGLM), q.queue(zebraYi, inflight.Also(acmeQwen))}
		d.set(inflight.Limits{Key: 2, Org: 2, Model: 1})
		q.LimitsChanged()
		require.Equal(t, []inflight.Scope{inflight.ScopeOrg, inflight.ScopeModel}, q.blockedAt())

		yi.Release()
		require.Equal(t, []inflight.Scope{inflight.ScopeOrg, inflight.ScopeOrg}, q.blockedAt())
		qwen.Release() // room in the org, for the first, whose model has none
		require.Equal(t, []inflight.Scope{inflight.ScopeModel}, q.blockedAt(), "the second is not held back by that")
		waiters[1].granted().Release()
		glm.Release()
		waiters[0].granted().Release()
		q.empty()

		// What was counted late is uncounted, too: new keys begin at nothing.
		glm = q.take(acmeGLM)
		waiters = nil
		for i := range 6 {
			waiters = append(waiters, q.queue(inflight.Key{Org: string(rune('a' + i)), Model: "glm"}))
		}
		for i, info := range q.Keys(0)[1:] {
			k := inflight.Key{Org: string(rune('a' + i)), Model: "glm"}
			require.Equal(t, inflight.KeyInfo{Key: k, Limit: 2, Waiters: 1}, info)
		}
		for _, a := range waiters {
			a.giveUp()
		}
		glm.Release()
		q.empty()
	})
}

// Each scope's limit, raised, lets its waiters in; by LimitsChanged at once, by a sweep when it comes.
func TestRaisedLimitsLetWaitersIn(t *testing.T) {
	raised := map[inflight.Scope][2]inflight.Limits{
		inflight.ScopeKey:   {{Key: 1}, {Key: 2}},
		inflight.ScopeOrg:   {{Org: 1}, {Org: 2}},
		inflight.ScopeModel: {{Model: 1}, {}},
		inflight.ScopeTotal: {{Total: 1}, {Total: inflight.Unlimited}},
	}
	signals := map[string]func(*queueTest){
		"LimitsChanged": func(q *queueTest) { q.LimitsChanged() },
		"Sweep":         func(q *queueTest) { require.Zero(q.t, q.Sweep().Waiters, "the report is of what is after it") },
	}
	for scope, l := range raised {
		for name, signal := range signals {
			t.Run(scope.String()+"/"+name, func(t *testing.T) {
				d := newDial(l[0])
				inQueueTest(t, d.limits, func(q *queueTest) {
					t := q.t
					held := q.take(acmeGLM)
					a := q.queue(acmeGLM)
					require.Equal(t, []inflight.Scope{scope}, q.blockedAt())
					d.set(l[1])
					signal(q)
					a.granted().Release()
					held.Release()
					q.empty()
				})
			})
		}
	}
}

// The sweeper lets waiters in after a raised limit without anybody calling anything.
func TestSweeperLetsWaitersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDial(inflight.Limits{Key: 1})
		r, err := inflight.New(inflight.Config{Limits: d.limits, SweepInterval: time.Minute})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		q := &queueTest{Registry: r, t: t}
		held := q.take(acmeGLM)
		a := q.queue(acmeGLM)
		d.set(inflight.Limits{Key: 2})
		time.Sleep(time.Minute - 1)
		require.True(t, a.waits())
		time.Sleep(time.Nanosecond)
		a.granted().Release()
		held.Release()
		q.empty()
	})
}

// A waiter that no longer fits at all is refused rather than left to wait for what cannot come, and those behind it go.
func TestWaiterThatCanNoLongerFitIsRefused(t *testing.T) {
	d := newDial(inflight.Limits{Key: 3})
	inQueueTest(t, d.limits, func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		big := q.queue(acmeGLM, inflight.Weight(3))
		small := q.queue(acmeGLM)
		also := q.queue(zebraYi, inflight.Also(acmeGLM), inflight.Weight(2))

		d.set(inflight.Limits{Key: 2})
		q.LimitsChanged()
		e := asLimitError(t, big.failed())
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 2, 3}, fields(e)[:5])
		require.NotErrorIs(t, e, inflight.ErrTooManyWaiters)
		require.EqualValues(t, 1, q.Stats().Rejected[inflight.ScopeKey].TooHeavy)
		require.Equal(t, 2, small.granted().Weight()+q.Slots(1)[0].Weight)

		// Blocked is a limit below every weight, even none; the first limit that is too small is the one that is named.
		none := q.queue(acmeQwen, inflight.Also(acmeGLM), inflight.Weight(0))
		d.set(inflight.Limits{Model: inflight.Blocked})
		q.LimitsChanged()
		e = asLimitError(t, also.failed())
		require.Equal(t, []any{zebraYi, inflight.ScopeModel, 0, inflight.Blocked, 2}, fields(e)[:5])
		e = asLimitError(t, none.failed())
		require.Equal(t, []any{acmeQwen, inflight.ScopeModel, 0, inflight.Blocked, 0}, fields(e)[:5])

		held.Release()
		small.slot.Release()
		q.empty()
	})
}
