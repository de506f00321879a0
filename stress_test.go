package inflight_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A gauge counts holders apart from the registry: what it says at its peak the registry has really admitted.
type gauge struct{ now, peak atomic.Int64 }

// hold counts n from now until the function that it returns is called, which must be before the slot is released.
func (g *gauge) hold(n int) (done func()) {
	now := g.now.Add(int64(n))
	for {
		peak := g.peak.Load()
		if now <= peak || g.peak.CompareAndSwap(peak, now) {
			return func() { g.now.Add(int64(-n)) }
		}
	}
}

// atOnce runs f on n goroutines that begin together, and waits for them.
func atOnce(n int, f func(i int)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// The case burst: of 1000 at once 100 are admitted, if nobody leaves.
func TestBurst(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 100})
	slots := make([]*inflight.Slot, 1000)
	var refusals atomic.Int64
	atOnce(len(slots), func(i int) {
		var err error
		if slots[i], err = r.TryAcquire(acmeGLM); err != nil {
			refusals.Add(1)
		}
	})
	require.EqualValues(t, 900, refusals.Load())
	s := r.Stats()
	require.Equal(t, []int{100, 100, 100}, []int{s.Holders, s.PeakInUse, s.PeakPerKey})
	require.EqualValues(t, 900, s.Rejected[inflight.ScopeKey].Full)
	releaseAll(slots)
	requireEmpty(t, r)
}

// The case churn: a key that comes and goes under racing goroutines never has more than its limit.
func TestChurn(t *testing.T) {
	for _, limit := range []int{1, 2} {
		r := newRegistry(t, inflight.Limits{Key: limit, Org: 100, Model: 100})
		var live gauge
		var admitted atomic.Int64
		atOnce(8, func(int) {
			for range 5000 {
				s, err := r.TryAcquire(acmeGLM)
				if err != nil {
					continue
				}
				admitted.Add(1)
				live.hold(1)()
				s.Release()
			}
		})
		require.LessOrEqual(t, live.peak.Load(), int64(limit))
		require.EqualValues(t, admitted.Load(), r.Stats().Admitted)
		require.LessOrEqual(t, r.Stats().PeakInUse, limit)
		requireEmpty(t, r)
	}
}

// The case total-over-keys: 1000 goroutines over 200 keys have no more than the total.
func TestTotalOverKeys(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Total: 10})
	var live gauge
	var admitted, refusals atomic.Int64
	atOnce(1000, func(i int) {
		k := keyOf(fmt.Sprint("org-", i%20), fmt.Sprint("model-", i%200))
		for range 10 {
			s, err := r.TryAcquire(k)
			if err != nil {
				refusals.Add(1)
				continue
			}
			admitted.Add(1)
			done := live.hold(1)
			runtime.Gosched()
			done()
			s.Release()
		}
	})
	require.LessOrEqual(t, live.peak.Load(), int64(10))
	s := r.Stats()
	require.EqualValues(t, admitted.Load(), s.Admitted)
	require.EqualValues(t, refusals.Load(), s.Rejected[inflight.ScopeTotal].Full)
	require.EqualValues(t, 10_000, s.Admitted+s.RejectedTotal())
	requireEmpty(t, r)
}

// 64 goroutines, 50 times each, on limit 8.
func TestStress(t *testing.T) {
	const goroutines, each, limit = 64, 50, 8
	r := newRegistry(t, inflight.Limits{Key: limit})
	var live gauge
	var admitted, refusals atomic.Int64
	atOnce(goroutines, func(int) {
		for range each {
			s, err := r.TryAcquire(acmeGLM)
			if err != nil {
				refusals.Add(1)
				continue
			}
			admitted.Add(1)
			done := live.hold(1)
			runtime.Gosched()
			done()
			s.Release()
		}
	})
	require.LessOrEqual(t, live.peak.Load(), int64(limit))
	require.EqualValues(t, goroutines*each, admitted.Load()+refusals.Load())
	s := r.Stats()
	require.EqualValues(t, admitted.Load(), s.Admitted)
	require.EqualValues(t, refusals.Load(), s.RejectedTotal())
	requireEmpty(t, r)
	admits(t, r, acmeGLM, limit)
}
