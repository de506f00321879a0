package inflight_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// The limit function is called outside the lock, so the limits may change between its return and the queueing. The
// acquire must not then sleep through the change.
func TestLimitReadBeforeAChangeAndQueuedAfterIt(t *testing.T) {
	tests := map[string]struct {
		before, after inflight.Limits
		opts          []inflight.Option
		waits         bool
	}{
		"raised":    {inflight.Limits{Key: 1}, inflight.Limits{Key: 2}, nil, false},
		"lifted":    {inflight.Limits{Total: 1}, inflight.Limits{}, nil, false},
		"lowered":   {inflight.Limits{Key: 3}, inflight.Limits{Key: 1}, []inflight.Option{inflight.Weight(3)}, false},
		"unchanged": {inflight.Limits{Key: 1}, inflight.Limits{Key: 1}, nil, true},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			var (
				q    *queueTest
				d    = newDial(x.before)
				race func()
			)
			limits := func(k inflight.Key) inflight.Limits {
				l := d.limits(k)
				if f := race; f != nil {
					race = nil
					f() // whoever called has read the old limits
				}
				return l
			}
			inQueueTest(t, limits, func(in *queueTest) {
				t := in.t
				q = in
				held := q.take(acmeGLM)
				race = func() {
					d.set(x.after)
					q.LimitsChanged()
				}
				a := q.acquire(acmeGLM, x.opts...)
				require.Equal(t, x.waits, a.waits())
				held.Release()
				switch name {
				case "lowered":
					require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 1, 3}, fields(asLimitError(t, a.failed()))[:5])
				default:
					a.granted().Release()
				}
				q.empty()
			})
		})
	}
}

// The context may end while the limit function runs. It is done when the slot would be handed out, so the acquire fails.
func TestContextThatEndsWhileLimitsAreRead(t *testing.T) {
	end := func() {}
	limits := func(inflight.Key) inflight.Limits {
		end()
		return inflight.Limits{Key: 1}
	}
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		ctx, cancel := context.WithCancel(t.Context())
		end = cancel
		s, err := q.Acquire(ctx, acmeGLM)
		require.Nil(t, s)
		require.Equal(t, context.Canceled, err) // the error itself, not one that wraps it
		require.EqualValues(t, 1, q.Stats().Canceled)
		q.empty()
	})
}

// Of two concurrent LimitsChanged the one that began first may read slowly. What it read is old, and must not win.
func TestSlowReaderOfOldLimitsDoesNotWin(t *testing.T) {
	tests := map[string]struct{ old, fresh inflight.Limits }{
		"old is lower":  {inflight.Limits{Key: 1}, inflight.Limits{Key: 2}},
		"old is higher": {inflight.Limits{Key: 9}, inflight.Limits{Key: 2}},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			var (
				d    = newDial(inflight.Limits{Key: 1})
				slow atomic.Bool
				hold chan struct{}
			)
			limits := func(k inflight.Key) inflight.Limits {
				l := d.limits(k)
				if slow.CompareAndSwap(true, false) {
					<-hold
				}
				return l
			}
			inQueueTest(t, limits, func(q *queueTest) {
				t := q.t
				hold = make(chan struct{})
				held := q.take(acmeGLM)
				waiters := []*queued{q.queue(acmeGLM), q.queue(acmeGLM), q.queue(acmeGLM)}

				d.set(x.old)
				slow.Store(true)
				go q.LimitsChanged()
				synctest.Wait()
				d.set(x.fresh)
				q.LimitsChanged()
				waiters[0].granted()
				require.True(t, waiters[1].waits())

				close(hold)
				require.True(t, waiters[1].waits(), "the old limit came back")
				held.Release()
				waiters[1].granted().Release()
				waiters[2].granted().Release()
				waiters[0].slot.Release()
				q.empty()
			})
		})
	}
}

// A limit function that panics where nobody could catch it is reported, and changes nothing for its key.
func TestLimitFuncPanicsOutsideAnAcquire(t *testing.T) {
	signals := map[string]func(*queueTest){
		"LimitsChanged": func(q *queueTest) { q.LimitsChanged() },
		"Sweep":         func(q *queueTest) { q.Sweep() },
	}
	for name, signal := range signals {
		t.Run(name, func(t *testing.T) {
			var (
				log   bytes.Buffer
				limit = 1
				fails = false
			)
			limits := func(k inflight.Key) inflight.Limits {
				if fails && k == acmeGLM {
					panic("no limits")
				}
				return inflight.Limits{Key: limit}
			}
			cfg := inflight.Config{Name: "gate", Limits: limits, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			inQueueTestOf(t, cfg, func(q *queueTest) {
				t := q.t
				held := []*inflight.Slot{q.take(acmeGLM), q.take(zebraYi)}
				first, other := q.queue(acmeGLM), q.queue(zebraYi)
				limit = 2
				second := q.queue(acmeGLM) // has read the higher limit, and is behind one that has not

				fails = true
				signal(q)
				require.Contains(t, log.String(), "limit function panicked")
				for _, part := range []string{"level=ERROR", "registry=gate", "key=acme/glm", `panic="no limits"`} {
					require.Contains(t, log.String(), part)
				}
				require.True(t, first.waits(), "its limit stayed as it was")
				other.granted().Release()

				fails = false
				q.LimitsChanged()
				first.granted().Release()
				second.granted().Release()
				for _, s := range held {
					s.Release()
				}
				q.empty()
			})
		})
	}
}

// Limit functions are called on each acquire, and by LimitsChanged once for each key that is waited for.
func TestLimitFuncIsCalledOncePerKey(t *testing.T) {
	calls := map[inflight.Key]int{}
	limits := func(k inflight.Key) inflight.Limits {
		calls[k]++
		return inflight.Limits{Key: 1}
	}
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		q.LimitsChanged()
		require.Empty(t, calls)
		held := q.take(acmeGLM, inflight.Also(zebraYi, acmeGLM, zebraYi))
		require.Equal(t, map[inflight.Key]int{acmeGLM: 1, zebraYi: 1}, calls)
		a, b := q.queue(acmeGLM), q.queue(acmeGLM, inflight.Also(acmeQwen))
		clear(calls)
		q.LimitsChanged()
		require.Equal(t, map[inflight.Key]int{acmeGLM: 1, acmeQwen: 1}, calls)
		clear(calls)
		held.Release()
		a.granted().Release()
		b.granted().Release()
		require.Empty(t, calls, "a release does not read limits")
		q.empty()
	})
}

// It is called without the lock, so it may ask the registry.
func TestLimitFuncMayUseTheRegistry(t *testing.T) {
	var q *queueTest
	asks := func(k inflight.Key) inflight.Limits {
		if q != nil {
			q.Evict(q.Stats().Admitted + 1)
			q.Cancel(uint64(q.InUse(k)+len(q.Slots(0))+len(q.Waiters(0))), nil)
		}
		return inflight.Limits{Key: 1}
	}
	inQueueTest(t, asks, func(in *queueTest) {
		q = in
		held := q.take(acmeGLM)
		a := q.queue(acmeGLM)
		q.refuses(acmeGLM)
		q.LimitsChanged()
		q.Sweep()
		held.Release()
		a.granted().Release()
		q.empty()
	})
}
