package fleet_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// renewed waits until just after the process has renewed its only shard.
func (m *process) renewed() {
	for last := m.Stats().LastSync; m.Stats().LastSync.Equal(last); {
		time.Sleep(answer)
	}
}

// The first call to an engine that has lost its data may say little, and the process may be cut off right after it for less
// than a TTL. Nobody gets what it holds meanwhile.
func TestProcessCutOffAfterTheFirstCallToAnEngineThatLostAll(t *testing.T) {
	cfg := fleet.Config{Shards: 1, Fallback: fleet.Closed}
	inBubbleOf(t, inflight.Limits{Key: 3}, cfg, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 3)
		a.renewed()
		w.Flush()
		b.refuses(zebra) // the engine begins to learn
		time.Sleep(ttl / 6)
		a.refuses(zebra) // says nothing of the other key
		w.Cut(a.Stats().ID, true)
		for range ttl/time.Second - 2 {
			b.refuses(acme)
			time.Sleep(time.Second)
		}
		w.Cut(a.Stats().ID, false)
		time.Sleep(denial)
		b.refuses(acme)
		releaseAll(held)
		b.queue(acme, inflight.Weight(3)).granted(2*ttl + syncing).Release()
	})
}

// An engine that has lost its data learns until it is told all, however many calls of a process that takes.
func TestEngineLearnsUntilItIsToldAll(t *testing.T) {
	const ttl, keys = 2 * time.Second, 1500
	cfg := fleet.Config{Shards: 1, TTL: ttl, CallTimeout: ttl / 4}
	inBubbleOf(t, inflight.Limits{Key: 1}, cfg, func(w *bubble) {
		a, b := w.join(), w.join()
		for i := range keys {
			defer a.take(inflight.Key{Model: strconv.Itoa(i)}).Release()
		}
		w.delay.Store(int64(120 * time.Millisecond)) // so the calls for all keys take longer than the TTL
		time.Sleep(3 * ttl)
		failed := a.Stats().Failed
		w.Flush()
		for begun := time.Now(); time.Since(begun) < 8*ttl; {
			for i := keys - 1; i > 0; i -= 99 { // those that are told last first
				b.refuses(inflight.Key{Model: strconv.Itoa(i)})
			}
		}
		require.Equal(w.t, failed, a.Stats().Failed)
		b.take(inflight.Key{Model: "another"}).Release()
	})
}

// A call that fails now and then costs the time of that call, and not of all renewals before it: or those that come last
// would be forgotten though nothing is wrong with the process.
func TestRenewalsThatFailNowAndThen(t *testing.T) {
	const ttl, keys, memory = time.Second, 1500, store.Memory
	cfg := fleet.Config{Shards: 1, TTL: ttl, CallTimeout: ttl / 4}
	inBubbleOf(t, inflight.Limits{Key: 1}, cfg, func(w *bubble) {
		a, b := w.join(), w.join()
		for i := range keys {
			defer a.take(inflight.Key{Model: strconv.Itoa(i)}).Release()
		}
		w.delay.Store(int64(25 * time.Millisecond))
		for begun := time.Now(); time.Since(begun) < (memory+5)*ttl; {
			w.Down(true)
			time.Sleep(50 * time.Millisecond)
			w.Down(false)
			time.Sleep(450 * time.Millisecond)
		}
		require.Greater(w.t, a.Stats().Failed, uint64(memory))
		for i := keys - 1; i > 0; i -= 50 { // the last first: there is time now to tell all
			b.refuses(inflight.Key{Model: strconv.Itoa(i)})
		}
	})
}

// Data of a time when nobody was there, as of a server that was saved before a fleet was started, look like those of a
// fleet that has left. Who has been promised a lease since then knows better.
func TestEngineWithDataOfATimeWhenNobodyWasThere(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		nobody := w.Snapshot()
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 10)
		b.refuses(acme)
		time.Sleep(2*ttl + syncing)
		w.Restore(nobody)
		for range ttl / time.Second {
			b.refuses(acme)
			time.Sleep(time.Second)
		}
		require.Positive(w.t, b.Stats().Lost)
		b.refuses(acme)
		releaseAll(held)
		b.queue(acme, inflight.Weight(10)).granted(ttl + syncing).Release() // it learns until a TTL after a has told all
	})
}

// What is in use where there was no limit counts when one is set, though no request comes there any more.
func TestLimitThatIsSetLaterCountsWhatIsInUseElsewhere(t *testing.T) {
	for name, limits := range map[string]inflight.Limits{
		"key": {Key: 5}, "org": {Org: 5}, "model": {Model: 5}, "total": {Total: 5},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, inflight.Limits{Key: inflight.Unlimited}, func(w *bubble) {
				a, b := w.join(), w.join()
				held := a.takeAll(acme, 5)
				w.change(limits, a, b)
				time.Sleep(syncing + answer)
				b.refuses(acme)
				releaseAll(held)
				b.queue(acme, inflight.Weight(5)).granted(4*syncing + denial).Release()
			})
		})
	}
}

// A limit that only another process has, or that other keys have, counts what is in use here too.
func TestLimitOfOtherKeysCountsWhatIsInUseHere(t *testing.T) {
	free, limited := inflight.Key{Org: "acme", Model: "free"}, inflight.Key{Org: "acme", Model: "limited"}
	for name, tc := range map[string]struct {
		limits inflight.Limits // of that key
		here   inflight.LimitFunc
	}{
		"org":                 {inflight.Limits{Org: 5}, nil},
		"total":               {inflight.Limits{Total: 5}, nil},
		"org, only elsewhere": {inflight.Limits{Org: 5}, inflight.Fixed(inflight.Limits{})},
		"total, elsewhere":    {inflight.Limits{Total: 5}, inflight.Fixed(inflight.Limits{})},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, inflight.Limits{}, func(w *bubble) {
				limits := func(k inflight.Key) inflight.Limits {
					if k == limited {
						return tc.limits
					}
					return inflight.Limits{Key: 100}
				}
				here := tc.here
				if here == nil {
					here = limits
				}
				a, b := w.joinLimited(here), w.joinLimited(limits)
				held := a.takeAll(free, 4)
				time.Sleep(syncing + answer)
				b.take(limited).Release()
				b.refuses(limited, inflight.Weight(2))
				releaseAll(held)
				b.queue(limited, inflight.Weight(5)).granted(4*syncing + denial).Release()
			})
		})
	}
}

// joinLimited makes a process with limits of its own.
func (w *bubble) joinLimited(limits inflight.LimitFunc) *process {
	w.t.Helper()
	reg, err := inflight.New(inflight.Config{Limits: limits, SweepInterval: -1, Logger: silent()})
	require.NoError(w.t, err)
	f, err := fleet.NewOn(w.t.Context(), w, reg, w.cfg)
	require.NoError(w.t, err)
	m := &process{f, w}
	w.t.Cleanup(m.abandon)
	return m
}

// Keys that are refused, or used, once do not pile up for as long as the engine is away.
func TestKeysOfAnOutageAreForgotten(t *testing.T) {
	for _, fallback := range []fleet.Fallback{fleet.Closed, fleet.Share} {
		t.Run(fallback.String(), func(t *testing.T) {
			inBubbleOf(t, inflight.Limits{Key: 10}, fleet.Config{Fallback: fallback}, func(w *bubble) {
				a := w.join()
				w.Down(true)
				time.Sleep(2 * ttl)
				for i := range 2000 {
					s, err := a.Acquire(w.t.Context(), inflight.Key{Model: strconv.Itoa(i)}, inflight.MaxWait(0))
					require.Equal(w.t, fallback == fleet.Share, err == nil)
					s.Release()
				}
				time.Sleep(2 * time.Second)
				require.LessOrEqual(w.t, a.Stats().Leases, 1, "the total's")
			})
		})
	}
}
