package inflight_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// How long leases hold is decided by the clock at each admission, whoever may be late to notice.
func TestLeaseLapses(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 5)
		held := l.take(acmeGLM)
		time.Sleep(term - 1)
		require.False(t, l.leases.Lapsed(0))
		l.take(acmeGLM).Release()
		time.Sleep(time.Nanosecond)
		require.True(t, l.leases.Lapsed(0))
		l.refuses(acmeGLM)
		require.NoError(t, held.Context(t.Context()).Err(), "who holds it goes on")

		l.renew()
		require.Equal(t, 1, l.granted(acmeGLM), "what is in use, for others may have got the rest")
		l.refuses(acmeGLM)
		held.Release()
		l.take(acmeGLM).Release()
	})
}

// Terms that are renewed in time change nothing about what is granted, unless the lender has forgotten who it was.
func TestLeaseRenewed(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 5)
		s := l.take(acmeGLM)
		time.Sleep(term - 1)
		l.renew()
		time.Sleep(term - 1)
		require.Equal(t, 5, l.granted(acmeGLM))
		l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term), Anew: true})
		require.Equal(t, 1, l.granted(acmeGLM))
		s.Release()
	})
}

func TestLeaseShareWhileTheLenderIsAway(t *testing.T) {
	for _, c := range []struct{ parts, part, limit, admits int }{
		{parts: 3, part: 0, limit: 11, admits: 4},
		{parts: 3, part: 1, limit: 11, admits: 4},
		{parts: 3, part: 2, limit: 11, admits: 3},
		{parts: 1, part: 0, limit: 11, admits: 11},
		{parts: 4, part: 2, limit: 2, admits: 0},
		{parts: 4, part: 4, limit: 7, admits: 1}, // it does not know which part it is
		{parts: 0, part: 0, limit: 11, admits: 0},
	} {
		inLeaseTest(t, perKey(c.limit), func(l *leaseTest) {
			terms := inflight.Terms{Parts: c.parts, Part: c.part}
			l.leases.Fall(0, terms)
			l.refuses(acmeGLM) // the leases still hold, of nothing
			l.asks()
			time.Sleep(term)
			l.refuses(acmeGLM) // nobody has asked since they lapsed
			l.leases.Fall(0, terms)
			admits(t, l.Registry, acmeGLM, c.admits)
			require.Empty(t, l.asks(), "nobody would answer")
		})
	}
}

// The waiters of a lender that is away are let in as the local slots are released.
func TestLeaseWaitersWhileTheLenderIsAway(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		time.Sleep(term)
		w := l.queue(acmeGLM)
		l.leases.Fall(0, inflight.Terms{Parts: 10})
		s := w.granted()
		w = l.queue(acmeGLM)
		s.Release()
		w.granted().Release()
		defer l.take(acmeGLM).Release()

		w = l.queue(acmeGLM)
		l.renew()
		require.Equal(t, 1, l.ask().Need, "back again, it is asked for those who wait")
		w.giveUp()
	})
}

// A lender that has lost its memory is told what may be in use: what was granted where leases still hold, and elsewhere
// the share of a process that has to go by that.
func TestLeaseLearning(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		learning := func() inflight.Terms {
			return inflight.Terms{Until: time.Now().Add(term), Parts: 2, Learning: true}
		}
		l.grant(acmeGLM, 3)
		s := l.take(acmeGLM)
		l.leases.Renew(0, learning())
		require.Equal(t, 3, l.granted(acmeGLM))
		held, _ := l.leases.Held(0, 100, true)
		for _, lease := range held {
			require.Zero(t, lease.Share)
		}

		time.Sleep(term)
		l.leases.Renew(0, learning())
		require.Equal(t, 5, l.granted(acmeGLM))
		l.refuses(zebraGLM)
		ask := l.ask()
		require.Equal(t, []int{0, 1, 5}, []int{ask.Have, ask.Need, ask.Share})
		l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: 5, Keep: -1, Denied: time.Second}})
		admits(t, l.Registry, zebraGLM, 5)
		l.leases.Renew(0, learning())
		require.Equal(t, 5, l.granted(acmeGLM), "that holds by now")

		l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term), Parts: 2})
		held, _ = l.leases.Held(0, 100, true)
		for _, lease := range held {
			require.Zero(t, lease.Share)
		}
		s.Release()
	})
}

// Who waits gets the share that the lender is told of.
func TestLeaseLearningLetsWaitersIn(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		time.Sleep(term)
		l.leases.Fall(0, inflight.Terms{})
		a, b := l.queue(acmeGLM, inflight.Weight(5)), l.queue(acmeGLM)
		l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term), Parts: 2, Learning: true})
		require.True(t, a.waits(), "nobody knows of its limit yet")
		l.answer(l.ask(), 5)
		a.granted()
		time.Sleep(term)
		l.leases.Fall(0, inflight.Terms{})
		require.True(t, b.waits())
		l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term), Parts: 1, Learning: true})
		b.granted().Release()
	})
}

// On a tight lease what falls idle is given back, if it finds no use at once.
func TestLeaseGivesBackWhatIsIdle(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 3)
		a, b := l.take(acmeGLM), l.take(acmeGLM)
		a.Release()
		require.Empty(t, l.leases.Idle(0, 100), "nobody lacks it")

		l.refuses(acmeGLM, inflight.Weight(3))
		l.deny(l.ask(), time.Second)
		idle := l.leases.Idle(0, 100)
		require.Len(t, idle, 1)
		require.Equal(t, []int{1, 0}, []int{idle[0].Have, idle[0].Need})
		require.Equal(t, 1, l.granted(acmeGLM))
		require.Empty(t, l.leases.Idle(0, 100), "once")
		l.leases.Answer(idle, []inflight.Grant{{Granted: 1, Keep: -1, Tight: true}})
		l.refuses(acmeGLM)
		l.deny(l.ask(), time.Second) // there was room, so it was asked for in spite of the denial

		b.Release()
		c := l.take(acmeGLM) // before anybody has come to fetch it
		require.Empty(t, l.leases.Idle(0, 100))
		c.Release()
		l.take(acmeGLM).Release()
		require.Empty(t, l.leases.Idle(0, 100), "it is in use now and then")
		<-l.leases.Wake(0)
		require.Len(t, l.leases.Idle(0, 100), 1)
	})
}

// What others have a better right to is given up as it is released, before anybody here gets it.
func TestLeaseKeep(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 5)
		var slots []*inflight.Slot
		for range 5 {
			slots = append(slots, l.take(acmeGLM))
		}
		w := l.queue(acmeGLM)
		ask := l.ask()
		l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: 5, Keep: 3, Tight: true, Denied: time.Second}})
		slots[0].Release()
		slots[1].Release()
		require.True(t, w.waits())
		require.Equal(t, 3, l.granted(acmeGLM))
		require.Len(t, l.leases.Idle(0, 100), 1)
		slots[2].Release()
		w.granted().Release()
		slots[3].Release()
		slots[4].Release()
		l.empty()
	})
}

// A renewal gives up what was of no use for two intervals.
func TestLeaseTrims(t *testing.T) {
	inLeaseTest(t, perKey(100), func(l *leaseTest) {
		have := func() int {
			held, more := l.leases.Held(0, 100, false)
			require.False(t, more)
			for _, lease := range held {
				if lease.Key == acmeGLM {
					return lease.Have
				}
			}
			return 0
		}
		l.grant(acmeGLM, 50)
		s := l.take(acmeGLM, inflight.Weight(2))
		l.take(acmeGLM, inflight.Weight(8)).Release()
		require.Equal(t, 10, have())
		require.Equal(t, 10, have(), "the interval before counts")
		require.Equal(t, 2, have())
		require.Equal(t, 2, l.granted(acmeGLM))
		s.Release()
	})
}

// A lease of nothing is told a few times more, for the lender may have lost that, and then forgotten.
func TestLeaseIsForgotten(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 1)
		l.take(acmeGLM).Release()
		last, rounds := uint64(0), 0
		for range 20 {
			held, _ := l.leases.Held(0, 100, false)
			for i, lease := range held {
				require.Greater(t, lease.Seq, last)
				last = lease.Seq
				l.answer(held[i], lease.Have)
			}
			if len(held) > 0 && held[0].Have == 0 {
				rounds++
			}
		}
		require.Equal(t, 4, rounds)
		leases, _ := l.leases.Totals()
		require.Equal(t, 1, leases, "the total's")
		l.refuses(acmeGLM)
		require.Greater(t, l.ask().Seq, last, "late calls about the lease that was must not count")
	})
}

// A place is one limit.
type place struct {
	scope inflight.Scope
	key   inflight.Key
}

func TestLeasesAreRenewedInParts(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		for i := range 10 {
			k := inflight.Key{Org: strconv.Itoa(i)}
			l.grant(k, 1)
			defer l.take(k).Release()
		}
		for range 2 { // one round after the other
			seen := make(map[place]bool)
			for more, calls := true, 0; more; calls++ {
				var held []inflight.Lease
				held, more = l.leases.Held(0, 4, false)
				require.LessOrEqual(t, len(held), 4)
				for _, lease := range held {
					require.False(t, seen[place{lease.Scope, lease.Key}])
					seen[place{lease.Scope, lease.Key}] = true
				}
			}
			require.Len(t, seen, 22) // and of the orgs, the model and the total, should they ever be limited
		}
		first, _ := l.leases.Held(0, 4, false)
		again, _ := l.leases.Held(0, 4, true)
		require.Equal(t, first[0].Key, again[0].Key)
	})
}

// Not more is taken at a time than there is room for in a call, and the rest is not forgotten.
func TestLeaseBatches(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		for i := range 10 {
			l.refuses(inflight.Key{Org: strconv.Itoa(i)})
		}
		asked := 0
		for range 3 {
			<-l.leases.Wake(0)
			asks, _ := l.leases.Asks(0, 4)
			require.LessOrEqual(t, len(asks), 4)
			asked += len(asks)
			for _, ask := range asks {
				l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: 1, Keep: -1, Tight: true}})
			}
		}
		require.Equal(t, 10, asked)
		var slots []*inflight.Slot
		for i := range 10 {
			slots = append(slots, l.take(inflight.Key{Org: strconv.Itoa(i)}))
		}
		releaseAll(slots)
		require.Empty(t, l.leases.Idle(0, 100), "all have been of use since they were granted")
		for _, n := range []int{4, 4, 2} {
			<-l.leases.Wake(0)
			require.Len(t, l.leases.Idle(0, 4), n)
		}
	})
}

// A call that failed may have been executed: what it may have had written down is made good.
func TestLeaseMakesGoodWhatAFailedCallMayHaveDone(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 1)
		s := l.take(acmeGLM)
		l.refuses(acmeGLM)
		l.deny(l.ask(), 1) // tight
		time.Sleep(time.Nanosecond)
		l.refuses(acmeGLM)
		l.leases.Fail(l.asks(), time.Second)
		require.Equal(t, 1, l.granted(acmeGLM))
		l.take(acmeGLM, inflight.Weight(0)).Release()
		idle := l.leases.Idle(0, 100)
		require.Len(t, idle, 1)
		require.Equal(t, 1, idle[0].Have)
		s.Release()
	})
}

// What a failed call was to renew is told again before the rest.
func TestLeaseRenewsWhatFailedFirst(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		for i := range 10 {
			k := inflight.Key{Org: strconv.Itoa(i)}
			l.grant(k, 1)
			defer l.take(k).Release()
		}
		failed, _ := l.leases.Held(0, 3, true)
		l.leases.Fail(failed, 0)
		again, _ := l.leases.Held(0, 3, false)
		var keys [2][]inflight.Key
		for i := range 3 {
			keys[0], keys[1] = append(keys[0], failed[i].Key), append(keys[1], again[i].Key)
		}
		require.ElementsMatch(t, keys[0], keys[1])
	})
}

// A lease that the lender is asked about just now is told by that, and not once more with less.
func TestLeaseThatIsAskedForIsNotRenewed(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 1)
		defer l.take(acmeGLM).Release()
		renewed := func() bool {
			held, _ := l.leases.Held(0, 100, true)
			return slices.ContainsFunc(held, func(lease inflight.Lease) bool { return lease.Scope == inflight.ScopeKey })
		}
		require.True(t, renewed())
		l.refuses(acmeGLM)
		require.True(t, renewed(), "nobody has taken what it asks for")
		ask := l.ask()
		require.False(t, renewed())
		l.answer(ask, 2)
		require.True(t, renewed())
	})
}

// The sum of what is wanted does not overflow.
func TestLeaseWantsNoMoreThanTheLimit(t *testing.T) {
	const limit = inflight.Unlimited - 1
	inLeaseTest(t, inflight.Fixed(inflight.Limits{Key: limit, Total: limit}), func(l *leaseTest) {
		var waiters []*queued
		for range 3 {
			waiters = append(waiters, l.briefly(acmeGLM, inflight.Weight(limit)))
		}
		asks := l.asks()
		require.Len(t, asks, 2)
		for _, ask := range asks {
			require.Equal(t, limit, ask.Need)
			l.answer(ask, limit)
		}
		first := waiters[0].granted()
		require.ErrorIs(t, waiters[1].failed(), inflight.ErrLimit)
		first.Release()
	})
}

// A release may turn away the last one who waits at a limit, and so remove the limit from the registry. That must happen
// once, or two limits would share a record later.
func TestLeaseReleaseTurnsAwayTheLastWaiter(t *testing.T) {
	inLeaseTest(t, inflight.Fixed(inflight.Limits{Key: 10, Total: 3}), func(l *leaseTest) {
		for _, k := range []inflight.Key{acmeGLM, zebraYi} {
			l.refuses(k)
			for _, ask := range l.asks() {
				l.answer(ask, map[inflight.Key]int{acmeGLM: 1, zebraYi: 2, {}: 3}[ask.Key])
			}
		}
		s := l.take(acmeGLM)
		heavy := l.briefly(acmeGLM, inflight.Weight(2))
		asks := l.asks()
		other := l.take(zebraYi, inflight.Weight(2))
		s.Release() // now the total has no room for it, and is not to be waited for
		require.ErrorIs(t, heavy.failed(), inflight.ErrLimit)
		l.leases.Fail(asks, time.Second)
		other.Release()
		l.empty()
		require.Zero(t, l.Gates())

		defer l.take(acmeGLM).Release()
		defer l.take(zebraYi).Release()
		require.Equal(t, []int{1, 1}, []int{l.InUse(acmeGLM), l.InUse(zebraYi)})
		require.Equal(t, 6, l.Gates(), "with those of the orgs and models")
	})
}

// What one limit of a waiter has granted is not given back while the other one has not answered, or the two would be granted
// in turn for ever.
func TestLeaseIsNotIdleWhileItsWaiterWaitsForAnother(t *testing.T) {
	inLeaseTest(t, inflight.Fixed(inflight.Limits{Key: 10, Total: 10}), func(l *leaseTest) {
		tight := func(ask inflight.Lease) {
			l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: ask.Have + ask.Need, Keep: -1, Tight: true}})
		}
		w := l.briefly(acmeGLM)
		asks := l.asks()
		require.Len(t, asks, 2)
		tight(asks[0])
		for range 5 {
			require.Empty(t, l.leases.Idle(0, 100))
		}
		tight(asks[1])
		w.granted().Release()
		require.Len(t, append(l.leases.Idle(0, 100), l.leases.Idle(0, 100)...), 2)
	})
}

// The lender is told what the first waiter needs, for less is of no use.
func TestLeaseSaysWhatTheFirstWaiterNeeds(t *testing.T) {
	inLeaseTest(t, inflight.Fixed(inflight.Limits{Key: 10, Total: 10}), func(l *leaseTest) {
		heavy, light := l.queue(acmeGLM, inflight.Weight(5)), l.queue(acmeGLM, inflight.Weight(2))
		asks := l.asks()
		require.Len(t, asks, 2)
		for _, ask := range asks {
			require.Equal(t, []int{7, 5}, []int{ask.Need, ask.Head})
			l.answer(ask, 3)
		}
		ask := l.ask()
		require.Equal(t, []int{3, 4, 2}, []int{ask.Have, ask.Need, ask.Head})
		l.answer(ask, 7)
		l.answer(l.ask(), 7)
		heavy.granted().Release()
		light.granted().Release()
		l.empty()
	})
}

// A renewal that failed is made again before the others, which are not made again for that.
func TestLeaseRenewalsGoOnWhereOneFailed(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		for i := range 10 {
			k := inflight.Key{Org: strconv.Itoa(i)}
			l.grant(k, 1)
			defer l.take(k).Release()
		}
		first, _ := l.leases.Held(0, 4, false)
		failed, _ := l.leases.Held(0, 4, false)
		l.leases.Fail(failed, time.Second)
		seen := make(map[place]bool)
		for more := true; more; {
			var held []inflight.Lease
			held, more = l.leases.Held(0, 4, false)
			for _, lease := range held {
				seen[place{lease.Scope, lease.Key}] = true
			}
		}
		require.Len(t, seen, 22-len(first))
		for _, lease := range failed {
			require.True(t, seen[place{lease.Scope, lease.Key}])
		}
	})
}

// While the lender is away, limits that are of no more use here are forgotten, if the lender was never told of them.
func TestLeasesOfAnOutageAreForgotten(t *testing.T) {
	inLeaseTest(t, perKey(10), func(l *leaseTest) {
		l.grant(acmeGLM, 1)
		time.Sleep(term)
		terms := inflight.Terms{Parts: 10}
		l.leases.Fall(0, terms)
		held := l.take(zebraYi)
		for i := range 100 {
			l.take(inflight.Key{Org: strconv.Itoa(i)}).Release()
			l.refuses(inflight.Key{Model: strconv.Itoa(i)}, inflight.Weight(2))
		}
		l.leases.Fall(0, terms)
		leases, _ := l.leases.Totals()
		require.Equal(t, 5, leases, "what was told, what is in use, and the total")
		held.Release()
	})
}
