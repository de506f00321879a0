package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// What a process had is free for others as soon as it has closed, long before its leases would have lapsed.
func TestCloseGivesBackAtOnce(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		releaseAll(a.takeAll(acme, 10))
		b.refuses(acme)
		require.NoError(w.t, a.Close(w.t.Context()))
		time.Sleep(denial)
		held := b.takeAll(acme, 10)
		releaseAll(held)
		time.Sleep(syncing)
		require.Equal(w.t, 1, b.Stats().Processes)
	})
}

// Close waits for what is in flight, and for nobody else.
func TestCloseWaitsForHolders(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 1}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.take(acme)
		waiter := a.queue(acme)
		closed := make(chan error, 1)
		go func() { closed <- a.Close(context.Background()) }()
		require.False(w.t, waiter.waits())
		require.ErrorIs(w.t, waiter.err, inflight.ErrClosed)
		time.Sleep(2 * ttl)
		b.refuses(acme) // its leases are renewed until then
		require.Empty(w.t, closed)
		require.NoError(w.t, held.Context(w.t.Context()).Err())
		held.Release()
		require.NoError(w.t, <-closed)
		time.Sleep(denial)
		b.take(acme).Release()

		_, err := a.Acquire(w.t.Context(), acme)
		require.ErrorIs(w.t, err, inflight.ErrClosed)
		require.NoError(w.t, a.Close(w.t.Context()), "again")
	})
}

// Where Close may not wait, the leases of what is still in flight lapse, and of the rest too.
func TestCloseThatMayNotWait(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.takeAll(acme, 10)
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(w.t, a.Close(ctx), context.DeadlineExceeded)
		require.NoError(w.t, a.Close(ctx), "again")
		require.NoError(w.t, held[0].Context(w.t.Context()).Err())
		b.refuses(acme)
		time.Sleep(ttl + denial)
		releaseAll(b.takeAll(acme, 10))
		releaseAll(held)
		a.empty()
	})
}

func TestCloseWithoutTheEngine(t *testing.T) {
	for name, fail := range map[string]func(w *bubble, m *process){
		"refused": func(w *bubble, _ *process) { w.Down(true) },
		"silent":  func(w *bubble, m *process) { w.Cut(m.Stats().ID, true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
				a, b := w.join(), w.join()
				releaseAll(a.takeAll(acme, 10))
				fail(w, a)
				begun := time.Now()
				require.ErrorContains(w.t, a.Close(w.t.Context()), "leases not given back, they lapse in 30s")
				require.LessOrEqual(w.t, time.Since(begun), 2*time.Second+250*time.Millisecond)
				w.Down(false)
				time.Sleep(denial)
				b.refuses(acme)
				time.Sleep(ttl)
				b.take(acme).Release()
			})
		})
	}
}

// A call that is lost is made again, for nothing else would make good for it.
func TestCloseLeavesWithPatience(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10}, func(w *bubble) {
		a, b := w.join(), w.join()
		releaseAll(a.takeAll(acme, 10))
		w.Down(true)
		time.AfterFunc(3*time.Millisecond, func() { w.Down(false) })
		require.NoError(w.t, a.Close(w.t.Context()))
		time.Sleep(denial)
		b.take(acme).Release()
	})
}
