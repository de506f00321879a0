package inflight_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// queueTest is a registry in a bubble of fake time, where every step has settled before the next one begins.
type queueTest struct {
	*inflight.Registry

	t *testing.T
}

// inQueueTest runs f in a bubble, with a registry that has the limits and nothing else set.
func inQueueTest(t *testing.T, limits inflight.LimitFunc, f func(q *queueTest)) {
	t.Helper()
	inQueueTestOf(t, inflight.Config{Limits: limits}, f)
}

// inQueueTestOf is inQueueTest for a registry with more to set. It has no sweeper.
func inQueueTestOf(t *testing.T, cfg inflight.Config, f func(q *queueTest)) {
	t.Helper()
	cfg.SweepInterval = -1
	synctest.Test(t, func(t *testing.T) {
		r, err := inflight.New(cfg)
		require.NoError(t, err)
		f(&queueTest{Registry: r, t: t})
	})
}

// take takes a slot at once.
func (q *queueTest) take(k inflight.Key, opts ...inflight.Option) *inflight.Slot {
	q.t.Helper()
	s, err := q.TryAcquire(k, opts...)
	require.NoError(q.t, err)
	return s
}

// refuses checks that TryAcquire refuses for a limit, and refused is what it says then.
func (q *queueTest) refuses(k inflight.Key, opts ...inflight.Option) {
	q.t.Helper()
	require.NotNil(q.t, q.refused(k, opts...))
}

func (q *queueTest) refused(k inflight.Key, opts ...inflight.Option) *inflight.LimitError {
	q.t.Helper()
	s, err := q.TryAcquire(k, opts...)
	require.Nil(q.t, s)
	return asLimitError(q.t, err)
}

func asLimitError(t *testing.T, err error) *inflight.LimitError {
	t.Helper()
	require.ErrorIs(t, err, inflight.ErrLimit)
	var e *inflight.LimitError
	require.ErrorAs(t, err, &e)
	return e
}

// A queued is an Acquire on a goroutine of its own.
type queued struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan struct{} // closed when Acquire has returned, and panicked, slot and err are set

	panicked any
	slot     *inflight.Slot
	err      error
}

// acquire starts an Acquire, and returns when it has its slot, was refused or waits.
func (q *queueTest) acquire(k inflight.Key, opts ...inflight.Option) *queued {
	q.t.Helper()
	return q.acquireCtx(q.t.Context(), k, opts...)
}

func (q *queueTest) acquireCtx(ctx context.Context, k inflight.Key, opts ...inflight.Option) *queued {
	q.t.Helper()
	a := q.start(ctx, k, opts...)
	synctest.Wait()
	return a
}

// start is acquireCtx without waiting for anything.
func (q *queueTest) start(ctx context.Context, k inflight.Key, opts ...inflight.Option) *queued {
	ctx, cancel := context.WithCancel(ctx)
	a := &queued{t: q.t, cancel: cancel, ended: make(chan struct{})}
	q.t.Cleanup(cancel) // lets a failed test end
	go func() {
		defer close(a.ended)
		defer func() { a.panicked = recover() }()
		a.slot, a.err = q.Acquire(ctx, k, opts...)
	}()
	return a
}

// queue starts an Acquire that must wait.
func (q *queueTest) queue(k inflight.Key, opts ...inflight.Option) *queued {
	q.t.Helper()
	a := q.acquire(k, opts...)
	if !a.waits() {
		require.FailNow(q.t, "acquire did not wait", "%v", a.err)
	}
	return a
}

func (a *queued) waits() bool {
	synctest.Wait()
	select {
	case <-a.ended:
		return false
	default:
		return true
	}
}

// granted is the slot that the acquire must have by now.
func (a *queued) granted() *inflight.Slot {
	a.t.Helper()
	require.False(a.t, a.waits(), "still waits")
	require.NoError(a.t, a.err)
	require.NotNil(a.t, a.slot)
	return a.slot
}

// failed is the error that the acquire must have by now.
func (a *queued) failed() error {
	a.t.Helper()
	require.False(a.t, a.waits(), "still waits")
	require.Nil(a.t, a.panicked)
	require.Error(a.t, a.err)
	require.Nil(a.t, a.slot)
	return a.err
}

// giveUp cancels the acquire, which must be waiting.
func (a *queued) giveUp() {
	a.t.Helper()
	require.True(a.t, a.waits(), "does not wait")
	a.cancel()
	require.Equal(a.t, context.Canceled, a.failed()) // the error itself, not one that wraps it
}

// empty checks that nobody holds or waits and that nothing is left behind.
func (q *queueTest) empty() {
	q.t.Helper()
	synctest.Wait()
	s := q.Stats()
	require.Zero(q.t, s.InUse, "in use")
	require.Zero(q.t, s.Holders, "holders")
	require.Zero(q.t, s.Waiters, "waiters")
	require.Zero(q.t, s.Keys, "keys")
	require.Empty(q.t, q.Keys(0))
	require.Empty(q.t, q.Slots(0))
	require.Empty(q.t, q.Waiters(0))
	require.Equal(q.t, s.Admitted, s.Released+s.Evicted, "every slot that was handed out came back")
}

// blockedAt is the scope of the limit that each waiter is queued at, oldest first.
func (q *queueTest) blockedAt() []inflight.Scope {
	var scopes []inflight.Scope
	for _, w := range q.Waiters(0) {
		scopes = append(scopes, w.Blocked)
	}
	return scopes
}

var (
	acmeGLM  = inflight.Key{Org: "acme", Model: "glm"}
	acmeQwen = inflight.Key{Org: "acme", Model: "qwen"}
	zebraGLM = inflight.Key{Org: "zebra", Model: "glm"}
	zebraYi  = inflight.Key{Org: "zebra", Model: "yi"}
)

func perKey(n int) inflight.LimitFunc { return inflight.Fixed(inflight.Limits{Key: n}) }
