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

var errOwn = errors.New("own cause")

// ends are the ways in which a slot's contexts end, in a registry with a MaxHold of a minute. They all leave the error
// context.Canceled.
var ends = map[string]struct {
	end   func(r *inflight.Registry, s *inflight.Slot)
	cause error
}{
	"Release":    {func(_ *inflight.Registry, s *inflight.Slot) { s.Release() }, inflight.ErrReleased},
	"Evict":      {func(r *inflight.Registry, s *inflight.Slot) { r.Evict(s.ID()) }, inflight.ErrEvicted},
	"Cancel":     {func(r *inflight.Registry, s *inflight.Slot) { r.Cancel(s.ID(), errOwn) }, errOwn},
	"Cancel nil": {func(r *inflight.Registry, s *inflight.Slot) { r.Cancel(s.ID(), nil) }, context.Canceled},
	"MaxHold": {func(r *inflight.Registry, _ *inflight.Slot) {
		time.Sleep(time.Minute + 1)
		r.Sweep()
	}, inflight.ErrHeldTooLong},
}

// An endTest is a live slot whose contexts end, with that cause, when end is called.
type endTest struct {
	*testing.T

	slot  *inflight.Slot
	end   func()
	cause error
}

// inEachEnd runs f in a bubble for each way in which a slot's contexts end.
func inEachEnd(t *testing.T, f func(e endTest)) {
	t.Helper()
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryOf(t, inflight.Config{SweepInterval: -1, MaxHold: time.Minute})
				s := take(t, r, acmeGLM)
				f(endTest{t, s, func() { e.end(r, s) }, e.cause})
				s.Release()
				requireEmpty(t, r)
			})
		})
	}
}

func requireLive(t *testing.T, ctx context.Context) { //nolint:revive // as in the other helpers, t goes first
	t.Helper()
	require.NoError(t, ctx.Err())
	require.NoError(t, context.Cause(ctx))
	select {
	case <-ctx.Done():
		require.FailNow(t, "done")
	default:
	}
}

func requireEnded(t *testing.T, ctx context.Context, cause error) { //nolint:revive // as above
	t.Helper()
	require.Equal(t, context.Canceled, ctx.Err()) //nolint:testifylint // the error itself, not one that wraps it
	require.Equal(t, cause, context.Cause(ctx))
	select {
	case <-ctx.Done():
	default:
		require.FailNow(t, "not done")
	}
}

// Each question about a context that has ended gets the right answer, whichever was asked first, and whether anything
// was asked before.
func TestContextEnds(t *testing.T) {
	questions := map[string]func(t *testing.T, ctx context.Context, cause error){
		"Err": func(t *testing.T, ctx context.Context, _ error) {
			t.Helper()
			require.Equal(t, context.Canceled, ctx.Err()) //nolint:testifylint // the error itself, not one that wraps it
		},
		"Cause": func(t *testing.T, ctx context.Context, cause error) {
			t.Helper()
			require.Equal(t, cause, context.Cause(ctx))
		},
		"Done": func(t *testing.T, ctx context.Context, _ error) {
			t.Helper()
			<-ctx.Done()
		},
		"WithCancel": func(t *testing.T, ctx context.Context, cause error) {
			t.Helper()
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			requireEnded(t, child, cause)
		},
	}
	for name, question := range questions {
		t.Run(name, func(t *testing.T) {
			inEachEnd(t, func(e endTest) {
				t, s, end, cause := e.T, e.slot, e.end, e.cause
				asked, unasked := s.Context(t.Context()), s.Context(t.Context())
				requireLive(t, asked)
				end()
				for _, ctx := range []context.Context{asked, unasked, s.Context(t.Context())} {
					question(t, ctx, cause)
					requireEnded(t, ctx, cause)
				}
			})
		})
	}
}

// Contexts made from that of a slot end with it, but for one that was made not to.
func TestContextChildren(t *testing.T) {
	inEachEnd(t, func(e endTest) {
		t, s, end, cause := e.T, e.slot, e.end, e.cause
		type key struct{}
		ctx := s.Context(context.WithValue(t.Context(), key{}, "value"))
		cancelled, cancel := context.WithCancel(ctx)
		defer cancel()
		timed, cancelTimed := context.WithTimeout(context.WithValue(ctx, key{}, "other"), time.Hour)
		defer cancelTimed()
		without := context.WithoutCancel(ctx)
		var after atomic.Bool
		defer context.AfterFunc(ctx, func() { after.Store(true) })()
		synctest.Wait()
		require.False(t, after.Load())
		requireLive(t, cancelled)
		requireLive(t, timed)

		end()
		synctest.Wait()
		require.True(t, after.Load())
		requireEnded(t, cancelled, cause)
		requireEnded(t, timed, cause)
		require.NoError(t, without.Err())
		require.Nil(t, without.Done())
		for _, c := range []context.Context{ctx, cancelled, timed, without} {
			require.Same(t, s, inflight.FromContext(c))
		}
		require.Equal(t, "value", ctx.Value(key{}))
		require.Equal(t, "other", timed.Value(key{}))
	})
}

// The first end gives the cause, and what comes later changes nothing.
func TestContextFirstCauseStays(t *testing.T) {
	for name, later := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryOf(t, inflight.Config{SweepInterval: -1, MaxHold: time.Minute})
				s := take(t, r, acmeGLM)
				ctx := s.Context(t.Context())
				requireLive(t, ctx)
				require.True(t, r.Cancel(s.ID(), errOwn))
				late := s.Context(t.Context())
				later.end(r, s)
				for _, c := range []context.Context{ctx, late, s.Context(t.Context())} {
					requireEnded(t, c, errOwn)
				}
				s.Release()
			})
		})
	}
}

// The registry asks nothing of a cause, and so gives it back as it is, also one that says to be ErrReleased.
func TestCauseIsOpaque(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	s := take(t, r, acmeGLM)
	defer s.Release()
	cause := &nosyError{ask: func() { r.InUse(acmeGLM) }}
	soon(t, func() { r.Cancel(s.ID(), cause) })
	require.Same(t, cause, context.Cause(s.Context(t.Context())))
}

// A nosyError is every error, and uses the registry to find that out.
type nosyError struct{ ask func() }

func (*nosyError) Error() string { return "nosy" }

func (c *nosyError) Is(error) bool {
	c.ask()
	return true
}

// A context that ended with its parent keeps the parent's error and cause, and the slot is held as before.
func TestContextEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, inflight.Limits{})
		s := take(t, r, acmeGLM)
		parent, cancel := context.WithCancelCause(t.Context())
		asked, unasked := s.Context(parent), s.Context(parent)
		requireLive(t, asked)
		cancel(errOwn)
		timeout, cancelTimeout := context.WithTimeout(t.Context(), time.Second)
		defer cancelTimeout()
		late := s.Context(timeout)
		deadline, ok := late.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Now().Add(time.Second), deadline)
		requireLive(t, late)
		time.Sleep(2 * time.Second)
		require.Equal(t, context.DeadlineExceeded, late.Err()) //nolint:testifylint // the error itself, not one that wraps it
		require.Equal(t, 1, r.InUse(acmeGLM))

		other := s.Context(t.Context())
		requireLive(t, other)
		for range 2 {
			requireEnded(t, asked, errOwn)
			requireEnded(t, unasked, errOwn)
			require.ErrorIs(t, context.Cause(late), context.DeadlineExceeded)
			s.Release()
		}
		requireEnded(t, other, inflight.ErrReleased)
	})
}

// A parent that package context does not know costs a goroutine, which ends with the slot.
func TestContextOfAForeignParent(t *testing.T) {
	inEachEnd(t, func(e endTest) {
		t, s, end, cause := e.T, e.slot, e.end, e.cause
		done := make(chan struct{})
		ctx := s.Context(foreign{t.Context(), done})
		requireLive(t, ctx)
		end()
		requireEnded(t, ctx, cause)
		synctest.Wait() // the bubble also fails if a goroutine is left in it
	})
}

// A context made from that of a slot needs no goroutine to end with it.
func TestContextChildNeedsNoGoroutine(t *testing.T) {
	s := take(t, newRegistry(t, inflight.Limits{}), acmeGLM)
	defer s.Release()
	before := runtime.NumGoroutine()
	for range 10 {
		_, cancel := context.WithCancel(s.Context(t.Context()))
		defer cancel()
	}
	require.Less(t, runtime.NumGoroutine(), before+10)
}

type foreign struct {
	context.Context //nolint:containedctx // it is a context

	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

func TestContextWithoutParentPanics(t *testing.T) {
	s := take(t, newRegistry(t, inflight.Limits{}), acmeGLM)
	defer s.Release()
	require.Panics(t, func() { s.Context(nil) }) //nolint:staticcheck // that is the question
}

// FromContext and Take look at the innermost slot only.
func TestFromContextAndTake(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	require.Nil(t, inflight.FromContext(t.Context()))
	require.Nil(t, inflight.Take(t.Context()))
	outer, inner := take(t, r, acmeGLM), take(t, r, zebraYi)
	ctx := outer.Context(t.Context())
	require.Same(t, outer, inflight.FromContext(ctx))
	both := inner.Context(ctx)
	require.Same(t, inner, inflight.FromContext(both))

	require.Same(t, inner, inflight.Take(both))
	require.Nil(t, inflight.Take(both))
	require.Nil(t, inflight.Take(inner.Context(t.Context())), "taken is the slot, not the context")
	require.Same(t, inner, inflight.FromContext(both))
	require.Same(t, outer, inflight.Take(ctx))

	inner.Release()
	requireEnded(t, both, inflight.ErrReleased)
	requireLive(t, ctx)
	require.Same(t, inner, inflight.FromContext(both), "also when it has ended")
	outer.Release()
	requireEnded(t, ctx, inflight.ErrReleased)
	requireEmpty(t, r)
}

// Of many who would take a slot over, one gets it.
func TestTakeOnce(t *testing.T) {
	s := take(t, newRegistry(t, inflight.Limits{}), acmeGLM)
	defer s.Release()
	ctx := s.Context(t.Context())
	var taken atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if inflight.Take(ctx) != nil {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, taken.Load())
}

// A worker that takes a context per job from one slot, held for days, does not gather them.
func TestEndedContextsDoNotPileUp(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	s := take(t, r, acmeGLM)
	long := s.Context(t.Context())
	requireLive(t, long)
	before := heap()
	for range 50_000 {
		job, cancel := context.WithCancel(t.Context())
		_ = s.Context(job).Done()
		cancel()
	}
	require.Less(t, heap(), before+1<<20)
	requireLive(t, long)
	s.Release()
	requireEnded(t, long, inflight.ErrReleased)
}

// Contexts that are asked while their slot ends all end, with its cause.
func TestContextsWhileTheSlotEnds(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	for range 2000 {
		s := take(t, r, acmeGLM)
		contexts := make([]context.Context, 4)
		var wg sync.WaitGroup
		for i := range contexts {
			contexts[i] = s.Context(t.Context()) //nolint:fatcontext // one for each, none of another
			for range 2 {
				wg.Go(func() { <-contexts[i].Done() })
			}
		}
		s.Release()
		soon(t, wg.Wait)
		for _, ctx := range contexts {
			requireEnded(t, ctx, inflight.ErrReleased)
		}
	}
}

// When Release has returned the contexts have ended, also one that somebody is just now asking for its Done channel.
func TestContextHasEndedOnceReleased(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	alive := 0
	for range 20_000 {
		s := take(t, r, acmeGLM)
		ctx := s.Context(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { ctx.Done() })
		s.Release()
		if ctx.Err() == nil || context.Cause(ctx) == nil {
			alive++
		}
		wg.Wait()
	}
	require.Zero(t, alive)
}
