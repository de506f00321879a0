package inflight_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestLeaseAdmitsWhatIsGranted(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 2)
		a, b := l.take(acmeGLM), l.take(acmeGLM)
		e := l.refused(acmeGLM)
		require.Equal(t, 10, e.Limit)
		require.Equal(t, 2, e.InUse)

		ask := l.ask()
		require.Equal(t, acmeGLM, ask.Key)
		require.Equal(t, inflight.ScopeKey, ask.Scope)
		require.Equal(t, 10, ask.Limit)
		require.Equal(t, 2, ask.Have)
		require.Equal(t, 1, ask.Need)
		l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: 2, Others: 8, Keep: -1, Denied: time.Second}})
		require.Equal(t, 10, l.refused(acmeGLM).InUse, "what others have is in use too")
		info := l.Keys(0)[0]
		require.True(t, info.Leased)
		require.Equal(t, []int{2, 8}, []int{info.Granted, info.Elsewhere})
		leases, granted := l.leases.Totals()
		require.Equal(t, 4, leases, "of the key, the org, the model and the total, should they be limited elsewhere")
		require.Equal(t, 2, granted[inflight.ScopeKey])

		a.Release()
		l.take(acmeGLM).Release()
		b.Release()
		l.empty()
		require.Zero(t, l.Gates())
	})
}

// A request that is not to wait for room waits for the answer of the lender, and for nothing else.
func TestLeaseBriefWaiters(t *testing.T) {
	for name, c := range map[string]struct {
		end func(l *leaseTest)
		err error // nil: it is let in
	}{
		"granted":  {func(l *leaseTest) { l.answer(l.ask(), 1) }, nil},
		"denied":   {func(l *leaseTest) { l.deny(l.ask(), time.Second) }, inflight.ErrLimit},
		"no reply": {func(l *leaseTest) { l.leases.Fail(l.asks(), time.Second) }, inflight.ErrLimit},
		"lapsed and not renewed": {func(l *leaseTest) {
			time.Sleep(term)
			l.leases.Fall(0, inflight.Terms{})
		}, inflight.ErrLimit},
		"lapsed, its part is free": {func(l *leaseTest) {
			time.Sleep(term)
			l.leases.Fall(0, inflight.Terms{Parts: 10})
		}, nil},
		"closed": {func(l *leaseTest) { require.NoError(l.t, l.Close()) }, inflight.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inLeaseTest(t, perKey(10), func(l *leaseTest) {
				a := l.briefly(acmeGLM)
				c.end(l)
				if c.err != nil {
					require.ErrorIs(t, a.failed(), c.err)
				} else {
					a.granted().Release()
				}
				l.empty()
			})
		})
	}
}

func TestLeaseBriefWaiterGoesWithItsContext(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.briefly(acmeGLM).giveUp()
		l.answer(l.ask(), 1)
		l.take(acmeGLM).Release()
		l.empty()
	})
}

// Those who wait for an answer only do not take the places of those who wait for room, and need none.
func TestLeaseBriefWaitersNeedNoPlaceInTheQueue(t *testing.T) {
	for name, cfg := range map[string]inflight.Config{
		"of the key":   {MaxWaitersPerKey: 2},
		"in all":       {MaxWaiters: 2},
		"at all":       {MaxWaiters: -1},
		"of an option": {},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Limits = perKey(100)
			inLeaseTestOf(t, cfg, func(l *leaseTest) {
				var burst []*queued
				for range 50 {
					burst = append(burst, l.briefly(acmeGLM))
				}
				patient := l.queue(acmeGLM)
				ask := l.ask()
				require.Equal(t, 51, ask.Need)
				l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: 50, Keep: -1, Denied: time.Second}})
				if cfg.MaxWaiters >= 0 {
					patient.giveUp()
				} else {
					require.ErrorIs(t, patient.failed(), inflight.ErrLimit)
				}
				for _, a := range burst {
					a.granted().Release()
				}
				l.empty()
			})
		})
	}
}

// Those who may wait for room go on waiting when there is none, and are asked for again when the denial is over.
func TestLeaseWaitersOutlastADenial(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		w := l.queue(acmeGLM)
		brief := l.briefly(acmeGLM)
		l.deny(l.ask(), time.Second)
		require.ErrorIs(t, brief.failed(), inflight.ErrLimit)

		<-l.leases.Wake(0) // to look when to ask again
		asks, again := l.leases.Asks(0, 100)
		require.Empty(t, asks)
		require.Equal(t, time.Second, time.Until(again))
		late := l.queue(acmeGLM)
		require.ErrorIs(t, l.acquire(acmeGLM, inflight.MaxWait(0)).failed(), inflight.ErrLimit, "no answer will come")
		time.Sleep(time.Second)
		ask := l.ask()
		require.Equal(t, 2, ask.Need)
		require.Equal(t, 1, ask.Denials)
		l.answer(ask, 1)
		first := w.granted()
		require.True(t, late.waits())
		first.Release()
		late.granted().Release()
		l.empty()
	})
}

// While nothing is asked for, and nothing is due, nobody is woken.
func TestLeaseDenialIsRemembered(t *testing.T) {
	limit := 10
	inLeaseTest(t, func(inflight.Key) inflight.Limits { return inflight.Limits{Key: limit} }, func(l *leaseTest) {
		l.refuses(acmeGLM)
		l.deny(l.ask(), time.Second)
		for len(l.leases.Wake(0)) > 0 {
			<-l.leases.Wake(0)
		}
		l.refuses(acmeGLM)
		require.Empty(t, l.leases.Wake(0))
		require.Empty(t, l.asks())

		limit = 11 // that was under another limit
		l.refuses(acmeGLM)
		l.deny(l.ask(), time.Second)
		time.Sleep(time.Second)
		l.refuses(acmeGLM)
		require.Equal(t, 2, l.ask().Denials)
	})
}

// What a request lacks is asked for at all its limits at a time, not at one after the other.
func TestLeaseAsksAtAllLimits(t *testing.T) {
	limits := inflight.Fixed(inflight.Limits{Key: 10, Org: 20, Model: inflight.Unlimited, Total: 40})
	inLeaseTest(t, limits, func(l *leaseTest) {
		a := l.briefly(acmeGLM, inflight.Weight(3), inflight.Also(zebraGLM))
		b := l.briefly(acmeGLM, inflight.Weight(2), inflight.Also(zebraGLM))
		asks := l.asks()
		needs := make(map[inflight.Scope][]int)
		for _, ask := range asks {
			needs[ask.Scope] = append(needs[ask.Scope], ask.Need)
		}
		require.Equal(t, map[inflight.Scope][]int{
			inflight.ScopeKey: {5, 5}, inflight.ScopeOrg: {5, 5}, inflight.ScopeTotal: {5},
		}, needs)
		for _, ask := range asks {
			require.True(t, a.waits())
			l.answer(ask, ask.Have+ask.Need)
		}
		a.granted().Release()
		b.granted().Release()
		l.empty()
		require.Zero(t, l.Gates())
	})
}

// A brief waiter that has got one of its limits is refused if another one has not enough.
func TestLeaseOfOneLimitIsNotEnough(t *testing.T) {
	inLeaseTest(t, inflight.Fixed(inflight.Limits{Key: 10, Total: 40}), func(l *leaseTest) {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			a := l.briefly(acmeGLM)
			asks := l.asks()
			require.Len(t, asks, 2)
			l.answer(asks[order[0]], 1)
			require.True(t, a.waits())
			l.deny(asks[order[1]], time.Millisecond)
			require.ErrorIs(t, a.failed(), inflight.ErrLimit)
			time.Sleep(time.Second)
			l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term), Anew: true})
		}
		l.empty()
	})
}

// What the limit itself has no room for is not asked for: no lender could help.
func TestLeaseIsNotAskedForBeyondTheLimit(t *testing.T) {
	limits := map[inflight.Key]inflight.Limits{
		acmeGLM: {Key: 1, Total: 2}, acmeQwen: {Key: inflight.Blocked, Total: 2}, zebraGLM: {Key: 5, Total: 2},
	}
	inLeaseTest(t, func(k inflight.Key) inflight.Limits { return limits[k] }, func(l *leaseTest) {
		l.refuses(acmeGLM)
		for _, ask := range l.asks() {
			l.answer(ask, 1)
		}
		s := l.take(acmeGLM)
		l.refuses(acmeGLM)
		l.refuses(acmeQwen)
		l.refuses(zebraGLM, inflight.Weight(3))
		require.Empty(t, l.asks())
		s.Release()
	})
}

// The new do not overtake those who wait for an answer, and the light not the heavy.
func TestLeaseQueueIsFirstComeFirstServed(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		heavy := l.briefly(acmeGLM, inflight.Weight(5))
		ask := l.ask()
		light := l.briefly(acmeGLM)
		l.answer(ask, 3)
		require.True(t, heavy.waits(), "it was not told that there is no more")
		require.True(t, light.waits())
		ask = l.ask()
		require.Equal(t, 3, ask.Need, "three of six are granted")
		l.answer(ask, 5)
		heavy.granted().Release()
		light.granted().Release()
		l.empty()
	})
}

func TestLeaseFollowsTheLimit(t *testing.T) {
	limit := 10
	inLeaseTest(t, func(inflight.Key) inflight.Limits { return inflight.Limits{Key: limit} }, func(l *leaseTest) {
		l.grant(acmeGLM, 8)
		a, b := l.take(acmeGLM), l.take(acmeGLM)
		limit = 5
		l.refuses(acmeGLM) // what was granted of ten says nothing of what is due of five
		ask := l.ask()
		require.Equal(t, []int{5, 2, 1}, []int{ask.Limit, ask.Have, ask.Need})
		l.answer(ask, 3)
		l.take(acmeGLM).Release()
		limit = inflight.Unlimited
		for range 5 {
			defer l.take(acmeGLM).Release()
		}
		limit = 50
		l.refuses(acmeGLM)
		require.Equal(t, 7, l.ask().Have, "what was taken without a lease counts")
		a.Release()
		b.Release()
	})
}

// A key whose limit is lowered lets waiters go that no longer fit, and asks for those that have waited for a limit.
func TestLeaseLimitsChanged(t *testing.T) {
	limit := 1
	inLeaseTest(t, func(inflight.Key) inflight.Limits { return inflight.Limits{Key: limit} }, func(l *leaseTest) {
		l.grant(acmeGLM, 1)
		s := l.take(acmeGLM)
		w := l.queue(acmeGLM)
		require.Empty(t, l.asks(), "the limit is full")
		limit = 2
		l.LimitsChanged()
		l.answer(l.ask(), 2)
		w.granted().Release()
		s.Release()
		l.empty()
	})
}

func TestLeaseCountsWhatWasThereBefore(t *testing.T) {
	inQueueTest(t, inflight.Fixed(inflight.Limits{Key: 10, Org: 10}), func(q *queueTest) {
		before := q.take(acmeGLM, inflight.Weight(4))
		leases, err := q.Lease(1, time.Hour)
		require.NoError(t, err)
		l := &leaseTest{q, leases}
		l.renew()
		held, more := leases.Held(0, 100, false)
		require.False(t, more)
		require.Len(t, held, 4) // the key's, the org's, and those of the model and the total, which are not limited
		for _, lease := range held {
			require.Equal(t, 4, lease.Have)
		}
		_, err = q.Lease(1, time.Hour)
		require.ErrorContains(t, err, "leased already")
		before.Release()
		l.empty()
	})
}

func TestLeaseWantsShards(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	for _, n := range []int{0, -1} {
		_, err := r.Lease(n, time.Hour)
		require.ErrorContains(t, err, "shards: must be at least 1")
	}
	leases, err := r.Lease(3, time.Hour)
	require.NoError(t, err)
	require.Equal(t, 3, leases.Shards())
}

// A request that is not to wait for room waits for answers as long as Lease was told, and then as if they had been no.
func TestLeaseBriefWaiterHasPatience(t *testing.T) {
	const patience = time.Second
	inQueueTest(t, perKey(10), func(q *queueTest) {
		_, err := q.Lease(1, 0)
		require.ErrorContains(t, err, "patience of 0s: must be positive")
		leases, err := q.Lease(1, patience)
		require.NoError(t, err)
		l := &leaseTest{q, leases}
		l.renew()
		heavy := l.briefly(acmeGLM, inflight.Weight(5))
		time.Sleep(patience / 2)
		light, patient := l.briefly(acmeGLM), l.queue(acmeGLM)
		l.answer(l.ask(), 1)
		require.True(t, heavy.waits(), "it was not told that there is no more")
		time.Sleep(patience / 2)
		e := asLimitError(t, heavy.failed())
		require.NotErrorIs(t, e, inflight.ErrTooManyWaiters)
		require.Equal(t, uint64(1), l.Stats().Rejected[inflight.ScopeKey].Full)
		light.granted().Release() // nobody holds it back any more
		patient.granted().Release()
		l.empty()
	})
}

// Those who wait for an answer when the first limit of an org appears are counted there too, and so take no place from
// those who wait for room, then or later.
func TestLeaseBriefWaitersOfALimitSetLater(t *testing.T) {
	org := inflight.Unlimited
	limits := func(inflight.Key) inflight.Limits { return inflight.Limits{Key: 10, Org: org} }
	inLeaseTestOf(t, inflight.Config{Limits: limits, MaxWaitersPerKey: 2}, func(l *leaseTest) {
		var brief []*queued
		for range 5 {
			brief = append(brief, l.briefly(acmeGLM))
		}
		org = 5
		brief = append(brief, l.briefly(zebraYi))
		for asks := l.asks(); len(asks) > 0; asks = l.asks() {
			l.leases.Fail(asks, time.Nanosecond)
		}
		for _, a := range brief {
			require.ErrorIs(t, a.failed(), inflight.ErrLimit)
		}
		l.empty()
		time.Sleep(time.Nanosecond)
		for i := range 4 { // by the records that the others had
			k := inflight.Key{Org: "globex", Model: strconv.Itoa(i)}
			defer l.queue(k).giveUp()
			defer l.queue(k).giveUp()
			third := l.acquire(k) // it may wait for the answer
			l.leases.Fail(l.asks(), time.Second)
			require.ErrorIs(t, third.failed(), inflight.ErrTooManyWaiters)
		}
	})
}

// Where the limits of a request differ for the same thing, what is granted must be within the lowest.
func TestLeaseAsksUnderTheLowestLimit(t *testing.T) {
	limits := map[inflight.Key]inflight.Limits{
		acmeGLM: {Key: inflight.Unlimited, Total: 10}, zebraGLM: {Key: inflight.Unlimited, Total: 8},
	}
	inLeaseTest(t, func(k inflight.Key) inflight.Limits { return limits[k] }, func(l *leaseTest) {
		for _, opts := range [][]inflight.Option{{inflight.Also(zebraGLM)}, nil} {
			var waiters []*queued
			for _, k := range []inflight.Key{acmeGLM, zebraGLM, acmeGLM} {
				waiters = append(waiters, l.briefly(k, opts...))
			}
			for _, ask := range l.asks() {
				l.answer(ask, 3)
			}
			for _, a := range waiters {
				a.granted().Release()
			}
			l.empty()
			l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term), Anew: true})
		}

		l.refuses(acmeGLM)
		l.answer(l.ask(), 2)
		l.refuses(zebraGLM)
		l.take(acmeGLM, inflight.Weight(2)).Release() // that was granted under its own limit
		ask := l.ask()
		require.Equal(t, []int{8, 0, 1}, []int{ask.Limit, ask.Have, ask.Need})
		l.answer(ask, 1)
		l.take(zebraGLM).Release()
		l.take(acmeGLM).Release()
	})
}

func TestLeaseAllocatesTheHandleOnly(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 10, Org: 10, Model: 10, Total: 10})
	leases, err := r.Lease(1, time.Hour)
	require.NoError(t, err)
	leases.Renew(0, inflight.Terms{Until: time.Now().Add(time.Hour)})
	refuses(t, r, acmeGLM)
	asks, _ := leases.Asks(0, 10)
	require.Len(t, asks, 4)
	for _, ask := range asks {
		leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: 5, Keep: -1}})
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		s, err := r.Acquire(context.Background(), acmeGLM)
		if err == nil {
			s.Release()
		}
	}), 1.0)
	take(t, r, acmeGLM).Release()
}
