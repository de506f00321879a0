package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// A process that is cut off for longer than its leases hold goes on with what it has in flight and, by its fallback, its
// share. That is all by which the limit can be exceeded, and it is granted nothing before that is over.
func TestProcessCutOffForLong(t *testing.T) {
	for _, tc := range []struct {
		fallback fleet.Fallback
		share    int
	}{{fleet.Closed, 0}, {fleet.Share, 5}, {fleet.Open, 10}} {
		t.Run(tc.fallback.String(), func(t *testing.T) {
			inBubbleOf(t, inflight.Limits{Key: 10}, fleet.Config{Fallback: tc.fallback}, func(w *bubble) {
				a, b := w.join(), w.join()
				held := a.takeAll(acme, 10)
				releaseAll(held[2:])
				held = held[:2]
				w.Cut(a.Stats().ID, true)
				time.Sleep(ttl)
				for range tc.share - 2 {
					held = append(held, a.take(acme))
				}
				a.refuses(acme)
				time.Sleep(denial) // until its leases have lapsed for the engine too
				elsewhere := b.takeAll(acme, 10)
				b.refuses(acme)

				w.Cut(a.Stats().ID, false)
				time.Sleep(2 * time.Second)
				a.refuses(acme)
				for _, s := range held {
					time.Sleep(2 * syncing)
					s.Release()
					a.refuses(acme)
				}
				b.refuses(acme)
				releaseAll(elsewhere)
				a.queue(acme, inflight.Weight(10)).granted(syncing + denial).Release()
			})
		})
	}
}

// One that is cut off for less than that goes on with what it is granted.
func TestProcessCutOffForAWhile(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 100}, func(w *bubble) {
		a := w.join()
		releaseAll(a.takeAll(acme, 10))
		w.Cut(a.Stats().ID, true)
		for range 3 {
			time.Sleep(5 * time.Second)
			releaseAll(a.takeAll(acme, 10))
		}
		require.Positive(w.t, a.Stats().Failed)
		w.Cut(a.Stats().ID, false)
		time.Sleep(2 * time.Second)
		releaseAll(a.takeAll(acme, 10))
		require.Zero(w.t, a.Stats().Fallback)
	})
}

// A renewal that failed is made again as soon as the engine is there, and not only when the next one is due.
func TestRenewalThatFailed(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a := w.join()
		time.Sleep(syncing / 2)
		w.Down(true)
		time.Sleep(syncing / 2)
		require.Positive(w.t, a.Stats().Failed)
		w.Down(false)
		time.Sleep(2 * time.Second)
		require.Less(w.t, time.Since(a.Stats().LastSync), 2*time.Second)
	})
}

// An engine that has lost what was written last may grant that again, once: it is told of it by the next renewal.
func TestEngineLosesTheLastWrites(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		before := w.Snapshot()
		held := a.takeAll(acme, 5)
		w.Restore(before)
		elsewhere := b.takeAll(acme, 10)
		time.Sleep(syncing + denial)
		releaseAll(held)
		a.refuses(acme)
		b.refuses(acme)
		releaseAll(elsewhere)
		a.queue(acme, inflight.Weight(10)).granted(syncing + denial).Release()
	})
}

// One that has lost all grants nothing until everybody has had the time to say what they have.
func TestEngineLosesAll(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 5)
		w.Flush()
		begun := time.Now()
		for time.Since(begun) < ttl-time.Second {
			b.refuses(acme)
			releaseAll(held)
			held = a.takeAll(acme, 5)
			time.Sleep(time.Second)
		}
		time.Sleep(syncing)
		last := b.queue(acme, inflight.Weight(5)).granted(syncing + denial)
		a.refuses(acme)
		b.refuses(acme)
		last.Release()
		releaseAll(held)
		require.Equal(w.t, uint64(16), a.Stats().Lost)
	})
}

// An answer that comes when the request has long been refused changes nothing, and what it grants is free again.
func TestLateAnswer(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		w.delay.Store(int64(300 * time.Millisecond))
		begun := time.Now()
		a.refuses(acme, inflight.Weight(10))
		require.Equal(w.t, 250*time.Millisecond, time.Since(begun))
		w.delay.Store(int64(time.Millisecond))
		time.Sleep(denial)
		a.empty()
		synctest.Wait()
		b.queue(acme, inflight.Weight(10)).granted(syncing + denial).Release()
		a.empty()
	})
}

// Nothing that has been held all the time is affected by an engine that comes and goes.
func TestHoldersOutliveTheEngine(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10, Total: 100}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 4)
		for range 5 {
			w.Down(true)
			time.Sleep(2 * ttl)
			w.Flush()
			w.Down(false)
			time.Sleep(ttl / 2)
		}
		time.Sleep(ttl)
		require.Equal(w.t, 4, a.Registry().InUse(acme))
		for _, s := range held {
			require.NoError(w.t, s.Context(w.t.Context()).Err())
		}
		rest := b.takeAll(acme, 6)
		b.refuses(acme)
		releaseAll(rest)
		releaseAll(held)
		a.leave()
		time.Sleep(denial)
		releaseAll(b.takeAll(acme, 10))
	})
}
