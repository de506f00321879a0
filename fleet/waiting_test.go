package fleet_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

var (
	acme  = inflight.Key{Org: "acme", Model: "glm"}
	zebra = inflight.Key{Org: "zebra", Model: "glm"}
)

func TestProcessesShareALimit(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := append(a.takeAll(acme, 6), b.takeAll(acme, 4)...)
		a.refuses(acme)
		b.refuses(acme)
		b.take(zebra).Release()
		releaseAll(held)
		a.empty()
		b.empty()
	})
}

// What one process releases is another's at the next renewal, when it hears that somebody waits.
func TestWaiterGetsWhatAnotherProcessReleases(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 3}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 3)
		waiter := b.queue(acme)
		releaseAll(held)
		waiter.granted(syncing + denial).Release()
	})
}

// Where it knows already that somebody waits, it gives back at once what it releases.
func TestTightLimitsAreGivenBackAtOnce(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 3}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 3)
		waiter := b.queue(acme)
		time.Sleep(syncing + denial)
		require.True(w.t, waiter.waits())
		held[0].Release()
		waiter.granted(denial).Release()
		releaseAll(held[1:])
	})
}

func TestWaitersOfAProcessKeepTheirOrder(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 3}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 3)
		var waiters []*pending
		for range 3 {
			waiters = append(waiters, b.queue(acme))
		}
		for i, s := range held {
			require.True(w.t, waiters[i].waits())
			s.Release()
			defer waiters[i].granted(syncing + denial).Release()
		}
	})
}

func TestWaiterThatGivesUpTakesNothing(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 1}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.take(acme)
		waiter := b.queue(acme)
		time.Sleep(syncing)
		waiter.cancel()
		<-waiter.ended
		require.ErrorIs(w.t, waiter.err, context.Canceled)
		held.Release()
		time.Sleep(syncing + denial)
		b.empty()
		a.take(acme).Release()
	})
}

// TryAcquire never calls, so the first one is refused. It asks for the next one.
func TestTryAcquireAsksForTheNext(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 3}, func(w *bubble) {
		a := w.join()
		begun := time.Now()
		_, err := a.Registry().TryAcquire(acme)
		require.ErrorIs(w.t, err, inflight.ErrLimit)
		require.Equal(w.t, begun, time.Now())
		time.Sleep(answer)
		s, err := a.Registry().TryAcquire(acme)
		require.NoError(w.t, err)
		s.Release()
	})
}

// Requests that are not to wait for room wait for the answer all the same, as many as there may be, and by one call.
func TestBurstGetsAllThereIs(t *testing.T) {
	inBubbleOf(t, inflight.Limits{Key: 300, Org: 300, Total: 300}, fleet.Config{Shards: 1}, func(w *bubble) {
		a := w.joinAs(inflight.Config{MaxWaiters: 2})
		calls := w.Counts().Calls
		var burst []*pending
		for range 300 {
			burst = append(burst, a.queue(acme, inflight.MaxWait(0)))
		}
		for _, p := range burst {
			defer p.granted(answer).Release()
		}
		a.refuses(acme)
		require.LessOrEqual(w.t, w.Counts().Calls-calls, 3, "for the first, for the others, and for one too many")
	})
}

// While a limit is full, the engine is not asked for each request that comes.
func TestDenialsAreRemembered(t *testing.T) {
	inBubbleOf(t, inflight.Limits{Key: 3}, fleet.Config{Shards: 1}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 3)
		before := b.Stats()
		for range 10_000 {
			b.refuses(acme)
			time.Sleep(time.Millisecond)
		}
		after := b.Stats()
		require.LessOrEqual(w.t, after.Calls-before.Calls, uint64(50))
		require.Greater(w.t, after.Denied-before.Denied, uint64(20))
		releaseAll(held)
		time.Sleep(syncing + denial)
		b.take(acme).Release() // nothing is remembered for long
	})
}

// Whoever is alone is asked by nobody, and asks nobody, but to be renewed.
func TestCallsOfAQuietFleet(t *testing.T) {
	inBubbleOf(t, inflight.Limits{Key: 100, Total: 1000}, fleet.Config{Shards: 1}, func(w *bubble) {
		a := w.join()
		hold := a.takeAll(acme, 10)
		releaseAll(hold)
		time.Sleep(time.Second)
		before := w.Counts()
		begun := time.Now()
		for range 60_000 {
			a.take(acme).Release()
			time.Sleep(time.Millisecond)
		}
		most := int(time.Since(begun)/(syncing-syncing/5)) + 1
		require.LessOrEqual(w.t, w.Counts().Calls-before.Calls, most)
		require.Zero(w.t, a.Stats().Failed)
	})
}

// An answer counts, whatever has come to an end meanwhile.
func TestNoCallFails(t *testing.T) {
	inBubble(t, inflight.Limits{}, func(w *bubble) {
		a := w.join()
		time.Sleep(2 * time.Hour)
		s := a.Stats()
		require.Greater(w.t, s.Calls, uint64(10_000))
		require.Zero(w.t, s.Failed)
	})
}

// A process that has all of a limit leaves half of it to another that comes later and needs as much.
func TestLatecomerGetsItsShare(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 20}, func(w *bubble) {
		a, b := w.join(), w.join()
		defer a.works(40)()
		time.Sleep(time.Minute)
		require.Equal(w.t, 20, a.Registry().InUse(acme))
		defer b.works(40)()
		time.Sleep(2*syncing + denial)
		sum, of := 0, 1000
		for range of {
			time.Sleep(7 * time.Millisecond)
			in, out := a.Registry().InUse(acme), b.Registry().InUse(acme)
			require.LessOrEqual(w.t, in+out, 20)
			sum += out
		}
		require.InDelta(w.t, 10, float64(sum)/float64(of), 2)
	})
}

// works has n goroutines that each take a slot, as soon as they can, and hold it for a tenth of a second, until stop.
func (m *process) works(n int) (stop func()) {
	ctx, cancel := context.WithCancel(m.w.t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if s, err := m.Acquire(ctx, acme, inflight.MaxWait(time.Second)); err == nil {
					time.Sleep(100 * time.Millisecond)
					s.Release()
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
