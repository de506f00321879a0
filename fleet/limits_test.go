package fleet_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A limit that is lowered drains: nobody is cut off, and nobody admitted, here or elsewhere, before there is room again.
func TestLoweredLimitDrains(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := append(a.takeAll(acme, 6), b.takeAll(acme, 4)...)
		w.change(inflight.Limits{Key: 4}, a, b)
		waiter := b.queue(acme)
		for i, s := range held {
			if len(held)-i >= 4 {
				a.refuses(acme)
				require.True(w.t, waiter.waits(), "%d are in use", len(held)-i)
			}
			require.NoError(w.t, s.Context(w.t.Context()).Err())
			s.Release()
			if len(held)-i > 4 {
				time.Sleep(syncing + denial)
			}
		}
		waiter.granted(syncing + denial).Release()
		all := a.queue(acme, inflight.Weight(4)).granted(syncing + denial)
		b.refuses(acme)
		all.Release()
	})
}

// What was granted under a higher limit, and is not in use, is not used any more.
func TestLoweredLimitTakesWhatIsIdle(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		releaseAll(a.takeAll(acme, 10))
		w.change(inflight.Limits{Key: 2})
		held := a.takeAll(acme, 2)
		a.refuses(acme)
		b.refuses(acme)
		releaseAll(held)
	})
}

func TestRaisedLimitLetsWaitersIn(t *testing.T) {
	for _, scope := range []inflight.Limits{{Key: 3}, {Key: 9, Org: 3}, {Key: 9, Model: 3}, {Key: 9, Total: 3}} {
		t.Run(fmt.Sprintf("%+v", scope), func(t *testing.T) {
			inBubble(t, scope, func(w *bubble) {
				a, b := w.join(), w.join()
				held := a.takeAll(acme, 3)
				waiter := b.queue(acme)
				time.Sleep(syncing + denial)
				require.True(w.t, waiter.waits())

				raised := scope
				for _, limit := range []*int{&raised.Key, &raised.Org, &raised.Model, &raised.Total} {
					if *limit == 3 {
						*limit = 4
					}
				}
				w.change(raised, a, b)
				s := waiter.granted(answer)
				a.refuses(acme)
				b.refuses(acme)
				s.Release()
				releaseAll(held)
			})
		})
	}
}

// All scopes hold over the fleet, and a slot that counts at several keys counts once at what they have in common.
func TestScopesHoldOverTheFleet(t *testing.T) {
	yi, glm := inflight.Key{Org: "acme", Model: "yi"}, inflight.Key{Org: "zebra", Model: "yi"}
	for name, tc := range map[string]struct {
		limits          inflight.Limits
		full, free      inflight.Key // when two of acme are in use
		takenByAlso     inflight.Key // one of those, also
		refusedThenToo  inflight.Key
		stillFreeAtLast inflight.Key
	}{
		"org":   {limits: inflight.Limits{Org: 2}, full: yi, free: zebra, takenByAlso: zebra, refusedThenToo: yi, stillFreeAtLast: glm},
		"model": {limits: inflight.Limits{Model: 2}, full: zebra, free: glm, takenByAlso: yi, refusedThenToo: zebra, stillFreeAtLast: glm},
		"total": {limits: inflight.Limits{Total: 2}, full: glm, takenByAlso: zebra, refusedThenToo: yi},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.limits, func(w *bubble) {
				a, b := w.join(), w.join()
				held := []*inflight.Slot{a.take(acme), b.take(acme)}
				check := func() {
					a.refuses(tc.full)
					b.refuses(tc.full)
					if tc.free != (inflight.Key{}) {
						b.take(tc.free).Release()
					}
				}
				check()
				releaseAll(held)
				time.Sleep(2*syncing + denial)
				held = []*inflight.Slot{a.take(acme, inflight.Also(tc.takenByAlso)), b.take(acme)}
				a.refuses(tc.refusedThenToo)
				if tc.stillFreeAtLast != (inflight.Key{}) {
					b.take(tc.stillFreeAtLast).Release()
				}
				releaseAll(held)
			})
		})
	}
}

// What is not used any more is forgotten, but for the total, which is one.
func TestIdleKeysAreForgotten(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 2, Total: 100}, func(w *bubble) {
		a := w.join()
		var held []*inflight.Slot
		for i := range 50 {
			held = append(held, a.take(inflight.Key{Org: strconv.Itoa(i)}))
		}
		require.Equal(w.t, 102, a.Stats().Leases, "of the keys, their orgs, the model, and the total")
		require.GreaterOrEqual(w.t, a.Stats().Granted[inflight.ScopeKey], 50)
		releaseAll(held[1:])
		time.Sleep(10 * syncing)
		require.Equal(w.t, 4, a.Stats().Leases)
		require.Equal(w.t, 1, a.Stats().Granted[inflight.ScopeKey])

		before := w.Counts().Entries
		time.Sleep(10 * syncing)
		require.LessOrEqual(w.t, w.Counts().Entries-before, 4*(10*5/4+1), "what is forgotten is not renewed")
		held[0].Release()
		time.Sleep(10 * syncing)
		require.Equal(w.t, 1, a.Stats().Leases)
		require.Equal(w.t, [4]int{}, a.Stats().Granted)
	})
}
