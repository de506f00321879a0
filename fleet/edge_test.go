package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// A Close that finds another one waiting for holders goes with its own context.
func TestCloseWhileAnotherOneWaits(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 1}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.take(acme)
		closed := make(chan error, 1)
		go func() { closed <- a.Close(context.Background()) }()
		ctx, cancel := context.WithTimeout(w.t.Context(), denial)
		defer cancel()
		time.Sleep(answer)
		second := make(chan error, 1)
		go func() { second <- a.Close(ctx) }()
		time.Sleep(2 * denial)
		require.Len(w.t, second, 1)
		require.ErrorIs(w.t, <-second, context.DeadlineExceeded)
		require.Empty(w.t, closed)
		held.Release()
		require.NoError(w.t, <-closed)
		require.NoError(w.t, a.Close(ctx), "there is nothing to wait for")
		time.Sleep(denial)
		b.take(acme).Release()
	})
}

// New that fails because the limits are leased already leaves nobody behind who would count as a process.
func TestNewThatFailsLeavesNobody(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 2}, func(w *bubble) {
		a := w.join()
		for range 3 {
			_, err := fleet.NewOn(w.t.Context(), w, a.Registry(), w.cfg)
			require.ErrorContains(w.t, err, "leased already")
		}
		time.Sleep(syncing + answer)
		require.Equal(w.t, 1, a.Stats().Processes)
	})
}

// The shortest TTL needs nothing else to be set.
func TestShortestTTL(t *testing.T) {
	inBubbleOf(t, inflight.Limits{Key: 1}, fleet.Config{TTL: 100 * time.Millisecond}, func(w *bubble) {
		a, b := w.join(), w.join()
		held := a.take(acme)
		time.Sleep(denial)
		b.refuses(acme)
		held.Release()
		b.queue(acme).granted(denial).Release()
		require.Zero(w.t, a.Stats().Failed)
	})
}
