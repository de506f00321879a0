package fleet_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// Requests that need two limits of which there is not enough get both, however far away the engine is, and whether one call
// tells of both or each has a shard of its own: neither is given back while the other is waited for.
func TestTwoTightLimits(t *testing.T) {
	for _, tc := range []struct {
		limits inflight.Limits
		shards int
	}{
		{inflight.Limits{Key: 6, Total: 7}, 1},
		{inflight.Limits{Key: 6, Total: 6}, 1},
		{inflight.Limits{Key: 6, Total: 7}, 16},
		{inflight.Limits{Key: 6, Total: 6}, 16},
		{inflight.Limits{Key: 6, Org: 6, Model: 7, Total: 7}, 16},
	} {
		for _, delay := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
			t.Run(fmt.Sprintf("%+v, %v", tc, delay), func(t *testing.T) {
				inBubbleOf(t, tc.limits, fleet.Config{Shards: tc.shards}, func(w *bubble) {
					const length = 30 * time.Second
					w.delay.Store(int64(delay))
					var yields []yield
					calls := w.calls(func() {
						yields = w.employ(length, 10, 50*time.Millisecond, acme, noOptions, w.join(), w.join())
					})
					sum := 0
					for _, y := range yields {
						sum += y.admitted
						require.Greater(w.t, y.last, length-2*denial, "when the last one was admitted")
						require.Less(w.t, y.longest, syncing+denial, "until the first one hears of the other")
					}
					require.LessOrEqual(w.t, calls, sum)
				})
			})
		}
	}
}

func noOptions() []inflight.Option { return nil }

// A request that is not to wait for room is answered in time, though what it needs of several limits comes and goes.
func TestBriefWaiterIsAnsweredInTime(t *testing.T) {
	const patience = 2 * 250 * time.Millisecond
	for _, limits := range []inflight.Limits{{Key: 6}, {Key: 6, Total: 6}, {Key: 6, Org: 6, Model: 6, Total: 6}} {
		t.Run(fmt.Sprintf("%+v", limits), func(t *testing.T) {
			inBubble(t, limits, func(w *bubble) {
				w.delay.Store(int64(25 * time.Millisecond))
				briefly := func() []inflight.Option { return []inflight.Option{inflight.MaxWait(0)} }
				for _, y := range w.employ(time.Minute, 6, 100*time.Millisecond, acme, briefly, w.join(), w.join(), w.join()) {
					require.LessOrEqual(w.t, y.longest, patience)
					require.Positive(w.t, y.admitted)
				}
			})
		})
	}
}

// Neither is it kept by the calls for others that are made before its own.
func TestBriefWaitersOfManyKeys(t *testing.T) {
	inBubbleOf(t, inflight.Limits{Key: 1}, fleet.Config{Shards: 1}, func(w *bubble) {
		a := w.join()
		w.delay.Store(int64(100 * time.Millisecond))
		var all []*pending
		begun := time.Now()
		for i := range 1000 { // ten calls, one after the other
			all = append(all, a.queue(inflight.Key{Model: strconv.Itoa(i)}, inflight.MaxWait(0)))
		}
		admitted := 0
		for _, p := range all {
			<-p.ended
			require.LessOrEqual(w.t, p.at.Sub(begun), 500*time.Millisecond)
			if p.err == nil {
				admitted++
			}
			p.slot.Release()
		}
		require.Positive(w.t, admitted)
		require.Less(w.t, admitted, len(all))
	})
}

// A request at two keys whose limits of the same thing differ is admitted within the lower one.
func TestAlsoWithAnotherTotal(t *testing.T) {
	for name, opts := range map[string][]inflight.Option{"waits": nil, "brief": {inflight.MaxWait(0)}} {
		for _, keys := range [][2]inflight.Key{{acme, zebra}, {zebra, acme}} {
			t.Run(name+", "+keys[0].Org+" first", func(t *testing.T) {
				inBubbleOf(t, inflight.Limits{}, fleet.Config{Shards: 1}, func(w *bubble) {
					a, b := w.joinLimited(twoTotals), w.joinLimited(twoTotals)
					opts := append([]inflight.Option{inflight.Also(keys[1])}, opts...)
					for range 5 {
						calls := w.calls(func() {
							s := a.queue(keys[0], opts...).granted(answer)
							b.take(acme).Release()
							s.Release()
						})
						require.LessOrEqual(w.t, calls, 15)
						time.Sleep(denial)
					}
					held := a.take(acme, inflight.Weight(8))
					b.refuses(zebra)
					b.refuses(keys[0], inflight.Also(keys[1]))
					b.take(acme).Release()
					held.Release()
				})
			})
		}
	}
}

// twoTotals gives acme more of the total than others.
func twoTotals(k inflight.Key) inflight.Limits {
	if k == acme {
		return inflight.Limits{Key: 64, Total: 10}
	}
	return inflight.Limits{Key: 64, Total: 8}
}

// Keys whose limits of the same thing differ do not take it away from each other, call after call. The engine is asked
// least where there is room for all.
func TestKeysWithDifferentTotals(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    []inflight.Option
		workers int // for each key
	}{
		"room for all": {nil, 4}, "too many": {nil, 6}, "too many, brief": {[]inflight.Option{inflight.MaxWait(0)}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, inflight.Limits{}, fleet.Config{Shards: 1}, func(w *bubble) {
				const length = 30 * time.Second
				a := w.joinLimited(twoTotals)
				options := func() []inflight.Option { return tc.opts }
				var both sync.WaitGroup
				var low, high []yield
				calls := w.calls(func() {
					both.Go(func() { low = w.employ(length, tc.workers, 15*time.Millisecond, zebra, options, a) })
					both.Go(func() { high = w.employ(length, tc.workers, 15*time.Millisecond, acme, options, a) })
					both.Wait()
				})
				require.Greater(w.t, low[0].last, length-denial)
				require.Greater(w.t, high[0].last, length-denial)
				most := low[0].admitted + high[0].admitted
				if 2*tc.workers <= 8 {
					most = 20
				}
				require.LessOrEqual(w.t, calls, most)
			})
		})
	}
}

// That somebody was refused is heard with the next renewal, however long ago that was by then: what has been idle is free
// again, though it would have been kept for longer.
func TestRefusalIsHeardWithTheNextRenewal(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		releaseAll(a.takeAll(acme, 5))
		b.refuses(acme, inflight.Weight(6))
		time.Sleep(syncing + answer)
		b.take(acme, inflight.Weight(6)).Release()
	})
}

// A limit that is less than the processes that want it goes around, also if they come so seldom that none is ever seen to
// wait for it.
func TestProcessesTakeTurnsAtALimitOfOne(t *testing.T) {
	for _, gap := range []time.Duration{600 * time.Millisecond, 3 * time.Second, 6 * time.Second, 12 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			inBubble(t, inflight.Limits{Key: 1}, func(w *bubble) {
				const rounds = 100
				processes := []*process{w.join(), w.join()}
				admitted := make([]int, len(processes))
				for range rounds {
					for i, m := range processes {
						if s, err := m.Acquire(w.t.Context(), acme, inflight.MaxWait(0)); err == nil {
							admitted[i]++
							time.Sleep(answer)
							s.Release()
						}
						time.Sleep(gap)
					}
				}
				for _, n := range admitted {
					require.GreaterOrEqual(w.t, n, rounds/10)
				}
			})
		})
	}
}
