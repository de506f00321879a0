package inflight_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A cancel and the release that would let the waiter in race. Whoever wins, nothing is lost and nothing stays.
func waitRace(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds = 5_000
	}
	r, err := inflight.New(inflight.Config{Limits: perKey(1), SweepInterval: -1})
	require.NoError(t, err)

	type round struct {
		held    *inflight.Slot
		ctx     context.Context //nolint:containedctx // of one round
		cancel  context.CancelFunc
		settled sync.WaitGroup
	}
	acquires, cancels := make(chan *round), make(chan *round)
	var granted, canceled int
	go func() {
		for x := range acquires {
			s, err := r.Acquire(x.ctx, acmeGLM)
			switch err {
			case nil:
				granted++
				s.Release()
			case context.Canceled: //nolint:errorlint // the error itself, not one that wraps it
				canceled++
			}
			x.settled.Done()
		}
	}()
	go func() {
		for x := range cancels {
			x.cancel()
			x.settled.Done()
		}
	}()
	for i := range rounds {
		x := &round{}
		x.held, _ = r.TryAcquire(acmeGLM)                 // nil, and missed in the counts below, if a slot had been lost
		x.ctx, x.cancel = context.WithCancel(t.Context()) //nolint:fatcontext // a new one each round, of the test's
		x.settled.Add(2)
		acquires <- x
		for len(r.Waiters(1)) == 0 {
			runtime.Gosched()
		}
		cancels <- x
		if i%2 == 1 {
			runtime.Gosched() // gives the cancel a start
		}
		x.held.Release()
		x.settled.Wait()
	}
	close(acquires)
	close(cancels)

	s := r.Stats()
	undone := s.Admitted - uint64(rounds) - uint64(granted) // every round has a holder besides the waiter
	t.Logf("%d granted, %d canceled, %d of them after the grant", granted, canceled, undone)
	require.Equal(t, rounds, granted+canceled)
	require.Zero(t, s.InUse)
	require.Zero(t, s.Waiters)
	require.Zero(t, s.Keys)
	require.EqualValues(t, rounds, s.Waited)
	require.LessOrEqual(t, undone, uint64(canceled))
	require.Equal(t, s.Admitted, s.Released)
	require.NotZero(t, granted)
	require.NotZero(t, canceled)
}

// fieldContext is a context of the user's own making.
type fieldContext struct {
	context.Context //nolint:containedctx // it is one

	done func() <-chan struct{}
	err  func() error
}

func (c fieldContext) Done() <-chan struct{} { return c.done() }
func (c fieldContext) Err() error            { return c.err() }

// The context ends after the slot was granted and before the waiter has woken: it still fails, and the slot, admitted
// already, is given back as any other.
func TestDoneContextFailsAlsoAfterTheGrant(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		var ended atomic.Bool
		ctx := fieldContext{
			Context: t.Context(),
			done:    func() <-chan struct{} { return nil },
			err: func() error {
				if ended.Load() {
					return context.Canceled
				}
				return nil
			},
		}
		var a queued
		held := q.take(acmeGLM)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.slot, a.err = q.Acquire(ctx, acmeGLM)
		}()
		synctest.Wait()
		behind := q.queue(acmeGLM)
		ended.Store(true)
		held.Release()
		<-done
		require.Nil(t, a.slot)
		require.Equal(t, context.Canceled, a.err) // the error itself, not one that wraps it

		behind.granted().Release()
		require.EqualValues(t, 3, q.Stats().Admitted)
		require.EqualValues(t, 3, q.Stats().Released)
		require.EqualValues(t, 2, q.Stats().Waited)
		q.empty()
	})
}

// A grant and the end of the waiter's own bound meet at one instant: the slot is not lost, whoever wins.
func TestGrantMeetsMaxWait(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		for range 200 {
			held := q.take(acmeGLM)
			go func() {
				time.Sleep(time.Second)
				held.Release()
			}()
			a := q.queue(acmeGLM, inflight.MaxWait(time.Second))
			time.Sleep(time.Second)
			require.False(t, a.waits())
			if a.err == nil {
				a.slot.Release()
			} else {
				require.ErrorIs(t, a.err, inflight.ErrLimit)
			}
			q.empty()
		}
	})
}

// Contexts are user code: what they panic with goes on to the caller, and nothing is left behind.
func TestPanickingContextLeaksNothing(t *testing.T) {
	errBoom := errors.New("boom")
	never := func() <-chan struct{} { return nil }
	// fail returns an Err that panics when it is called the n-th time.
	fail := func(n int) func() error {
		return func() error {
			if n--; n == 0 {
				panic(errBoom)
			}
			return nil
		}
	}
	contexts := map[string]fieldContext{
		"Err at first":          {done: never, err: fail(1)},
		"Err after the wait":    {done: never, err: fail(2)},
		"Done":                  {done: func() <-chan struct{} { panic(errBoom) }, err: fail(0)},
		"Err when it has ended": {done: closed, err: fail(2)},
	}
	for name, ctx := range contexts {
		t.Run(name, func(t *testing.T) {
			inQueueTest(t, perKey(1), func(q *queueTest) {
				t := q.t
				held := q.take(acmeGLM)
				done := make(chan any)
				go func() {
					defer func() { done <- recover() }()
					_, _ = q.Acquire(ctx, acmeGLM) //slotvet:ignore it ends without one
				}()
				synctest.Wait()
				behind := q.queue(acmeGLM)
				held.Release()
				require.Equal(t, errBoom, <-done)
				behind.granted().Release()
				q.empty()
			})
		})
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Many goroutines wait for few slots, and half of them lose patience. Never is a limit passed, and all end.
func TestWaitersUnderLoad(t *testing.T) {
	const limit, workers = 3, 32
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	r, err := inflight.New(inflight.Config{
		Limits: inflight.Fixed(inflight.Limits{Key: 2, Total: limit}), SweepInterval: -1,
	})
	require.NoError(t, err)
	keys := []inflight.Key{acmeGLM, acmeQwen, zebraYi}
	var (
		live, passed, got atomic.Int64
		all               sync.WaitGroup
	)
	for worker := range workers {
		all.Go(func() {
			for i := range rounds {
				patience := time.Duration(1+i%7) * 20 * time.Microsecond
				if worker%2 == 0 {
					patience = time.Hour
				}
				s, err := r.Acquire(t.Context(), keys[(worker+i)%len(keys)], inflight.MaxWait(patience))
				if err != nil {
					continue
				}
				got.Add(1)
				if live.Add(1) > limit {
					passed.Add(1)
				}
				live.Add(-1)
				s.Release()
			}
		})
	}
	all.Wait()
	s := r.Stats()
	require.Zero(t, passed.Load(), "the limit was passed")
	require.LessOrEqual(t, s.PeakInUse, limit)
	require.LessOrEqual(t, s.PeakPerKey, 2)
	require.GreaterOrEqual(t, got.Load(), int64(workers/2*rounds), "the patient half is served")
	require.Equal(t, s.Admitted, s.Released)
	require.Zero(t, s.InUse)
	require.Zero(t, s.Waiters)
	require.Zero(t, s.Keys)
}
