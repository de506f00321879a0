package fleet_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// calls is how many calls are made until f returns.
func (w *bubble) calls(f func()) int {
	before := w.Counts().Calls
	f()
	return w.Counts().Calls - before
}

// often is how many calls a process may make for waiters that it cannot serve: each time that it asks it may give back what
// it got.
func often(d time.Duration) int { return 8 * int(d/time.Second) }

// A yield is what a process got.
type yield struct {
	admitted, refused int
	last              time.Duration // from the begin to the last admission
	longest           time.Duration // that a request waited
}

// employ has so many goroutines in each process make one request after the other for a while. It returns what each got.
func (w *bubble) employ(d time.Duration, workers int, hold time.Duration, k inflight.Key, opts func() []inflight.Option,
	members ...*process,
) []yield {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	begun := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	yields := make([]yield, len(members))
	for i, m := range members {
		y := &yields[i]
		for range workers {
			all.Go(func() {
				for ctx.Err() == nil {
					asked := time.Now()
					s, err := m.Acquire(ctx, k, opts()...)
					mu.Lock()
					y.longest = max(y.longest, time.Since(asked))
					if err == nil {
						y.admitted++
						y.last = time.Since(begun)
					} else if ctx.Err() == nil {
						y.refused++
					}
					mu.Unlock()
					if err == nil {
						time.Sleep(hold)
						s.Release()
					}
					time.Sleep(answer)
				}
			})
		}
	}
	all.Wait()
	return yields
}

// Where each process has one waiter that needs more than there is for all of them, they are served one after the other.
func TestHeavyWaitersAreServedInTurn(t *testing.T) {
	for _, tc := range []struct{ limit, weight, processes int }{
		{10, 5, 2}, {10, 6, 2}, {10, 10, 2}, {4, 3, 2}, {10, 4, 3}, {3, 2, 2}, {2, 2, 2}, {10, 7, 5},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			inBubble(t, inflight.Limits{Key: tc.limit}, func(w *bubble) {
				held := w.join().take(acme, inflight.Weight(tc.limit))
				var waiters []*pending
				for range tc.processes {
					waiters = append(waiters, w.join().queue(acme, inflight.Weight(tc.weight)))
				}
				time.Sleep(3 * time.Second)
				held.Release()
				var served sync.WaitGroup
				for _, p := range waiters {
					served.Go(func() {
						<-p.ended
						p.slot.Release()
					})
				}
				begun := time.Now()
				calls := w.calls(func() {
					for _, p := range waiters {
						p.granted(syncing + time.Duration(tc.processes)*denial)
					}
				})
				served.Wait()
				require.LessOrEqual(w.t, calls, 20*tc.processes+(tc.processes+1)*often(time.Since(begun)))
			})
		})
	}
}

// Jobs of all weights go on in every process, and the engine is not asked all the time.
func TestJobsOfMixedWeightsGoOn(t *testing.T) {
	for _, most := range []int{4, 12, 24} {
		t.Run(fmt.Sprint("up to ", most), func(t *testing.T) {
			inBubble(t, inflight.Limits{Key: 24}, func(w *bubble) {
				const length = time.Minute
				var yields []yield
				weight := func() []inflight.Option { return []inflight.Option{inflight.Weight(1 + rand.IntN(most))} }
				calls := w.calls(func() {
					yields = w.employ(length, 12, 200*time.Millisecond, acme, weight, w.join(), w.join(), w.join())
				})
				sum := 0
				for _, y := range yields {
					sum += y.admitted
					require.Greater(w.t, y.last, length-10*time.Second, "when the last one was admitted")
				}
				require.LessOrEqual(w.t, calls, 2*sum+len(yields)*often(length))
			})
		})
	}
}

// One that needs most of a limit is not overtaken for ever by the many that need little, in its own process or in others.
func TestHeavyWaiterAmongLightOnes(t *testing.T) {
	for _, processes := range []int{2, 3, 6} {
		t.Run(strconv.Itoa(processes), func(t *testing.T) {
			inBubble(t, inflight.Limits{Key: 12}, func(w *bubble) {
				heavy := w.join()
				var members []*process
				for range processes - 1 {
					members = append(members, w.join())
				}
				var light sync.WaitGroup
				light.Go(func() { w.employ(time.Minute, 12, 100*time.Millisecond, acme, noOptions, members...) })
				time.Sleep(syncing)
				for _, weight := range []int{12, 9, 7} {
					heavy.queue(acme, inflight.Weight(weight)).granted(3 * denial).Release()
				}
				light.Wait()
			})
		})
	}
}

// A waiter for which there is no room is asked for now and then, also if there is room for a part of it.
func TestHeavyWaiterWithoutRoom(t *testing.T) {
	for _, free := range []int{0, 3} {
		inBubbleOf(t, inflight.Limits{Key: 10}, fleet.Config{Shards: 1}, func(w *bubble) {
			a, b := w.join(), w.join()
			held := a.takeAll(acme, 10-free)
			waiter := b.queue(acme, inflight.Weight(5))
			require.LessOrEqual(w.t, w.calls(func() { time.Sleep(time.Minute) }), often(time.Minute)/2)
			require.True(w.t, waiter.waits())
			releaseAll(held)
			waiter.granted(syncing + denial).Release()
		})
	}
}

// A weight that no engine can count is asked for no more often than any other one.
func TestWeightThatIsMoreThanAnEngineCanCount(t *testing.T) {
	inBubbleOf(t, inflight.Limits{Key: math.MaxInt - 1}, fleet.Config{Shards: 1}, func(w *bubble) {
		a := w.join()
		a.take(acme, inflight.Weight(1<<53)).Release()
		waiter := a.queue(acme, inflight.Weight(1<<53+1))
		require.LessOrEqual(w.t, w.calls(func() { time.Sleep(time.Minute) }), often(time.Minute))
		require.True(w.t, waiter.waits())
	})
}
