package inflight_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A closed registry admits nobody; who holds goes on, and can be seen, cancelled and released.
func TestClose(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	s := take(t, r, acmeGLM)
	ctx := s.Context(t.Context())
	require.NoError(t, r.Close())
	for _, acquire := range []func() (*inflight.Slot, error){
		func() (*inflight.Slot, error) { return r.TryAcquire(acmeGLM) },
		func() (*inflight.Slot, error) { return r.Acquire(t.Context(), zebraYi) },
		func() (*inflight.Slot, error) { return r.TryAcquire(acmeGLM, inflight.Weight(1000)) },
	} {
		slot, err := acquire()
		require.Nil(t, slot)
		require.Equal(t, inflight.ErrClosed, err) //nolint:testifylint // the error itself
	}
	require.EqualValues(t, 3, r.Stats().Closed)
	require.Zero(t, r.Stats().RejectedTotal())
	requireLive(t, ctx)
	require.Equal(t, 1, r.InUse(acmeGLM))
	require.Len(t, r.Slots(0), 1)
	require.Equal(t, 1, r.Sweep().Holders)
	require.True(t, r.Cancel(s.ID(), errOwn))
	requireEnded(t, ctx, errOwn)
	s.Release()
	requireEmpty(t, r)
}

// Close and Shutdown may be called in any order, any number of times, at the same time.
func TestCloseAndShutdownInAnyOrder(t *testing.T) {
	for _, order := range []string{"CC", "CS", "SC", "SS", "CSCS", "SCSC"} {
		synctest.Test(t, func(t *testing.T) {
			r, err := inflight.New(inflight.Config{})
			require.NoError(t, err)
			for _, call := range order {
				if call == 'C' {
					require.NoError(t, r.Close())
				} else {
					require.NoError(t, r.Shutdown(t.Context()))
				}
				_, err = r.TryAcquire(acmeGLM)
				require.ErrorIs(t, err, inflight.ErrClosed)
				requireNoSweeper(t)
			}
			require.EqualValues(t, len(order), r.Stats().Closed)
		})
	}
}

// requireNoSweeper checks that no sweeper runs, of any registry.
func requireNoSweeper(t *testing.T) {
	t.Helper()
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	require.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "inflight.sweeper")
}

// The case shutdown-stream: Shutdown waits as long as its context lasts, and says how many slots are left.
func TestShutdownSaysWhatIsLeft(t *testing.T) {
	for slots, message := range map[int]string{
		1: "inflight: shutdown: 1 slot left: context deadline exceeded",
		2: "inflight: shutdown: 2 slots left: context deadline exceeded",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryOf(t, inflight.Config{SweepInterval: -1})
			var held []*inflight.Slot
			for range slots {
				held = append(held, take(t, r, acmeGLM, inflight.Weight(3)))
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := r.Shutdown(ctx)
			require.EqualError(t, err, message)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(start))
			require.EqualError(t, r.Shutdown(ctx), message, "at once, for the context has ended")
			require.Equal(t, 3*slots, r.InUse(acmeGLM))
			_, err = r.TryAcquire(zebraYi)
			require.ErrorIs(t, err, inflight.ErrClosed)

			cancelled, cancelIt := context.WithCancel(t.Context())
			cancelIt()
			require.ErrorIs(t, r.Shutdown(cancelled), context.Canceled)
			releaseAll(held)
			require.NoError(t, r.Shutdown(cancelled), "nothing is left to wait for")
		})
	}
}

// Shutdown returns when the last slot leaves, in whatever way, to all who called it, and has ended the sweeper then.
func TestShutdownWaitsUntilEmpty(t *testing.T) {
	for name, last := range map[string]func(*inflight.Registry, *inflight.Slot){
		"released": func(_ *inflight.Registry, s *inflight.Slot) { s.Release() },
		"evicted":  func(r *inflight.Registry, s *inflight.Slot) { r.Evict(s.ID()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sweeps := make(chan time.Time, 100)
				r := registryOf(t, inflight.Config{OnSweep: func(rep inflight.SweepReport) { sweeps <- rep.At }})
				a, b := take(t, r, acmeGLM, inflight.Weight(0)), take(t, r, zebraYi, inflight.Weight(0))
				returned := make(chan error, 3)
				for range 3 {
					go func() { returned <- r.Shutdown(t.Context()) }()
				}
				synctest.Wait()
				_, err := r.TryAcquire(acmeGLM)
				require.ErrorIs(t, err, inflight.ErrClosed)
				a.Release()
				time.Sleep(150 * time.Second)
				require.Empty(t, returned)
				require.Len(t, sweeps, 2, "the sweeper goes on")
				last(r, b)
				synctest.Wait()
				require.Len(t, returned, 3)
				for range 3 {
					require.NoError(t, <-returned)
				}
				time.Sleep(time.Hour)
				require.Len(t, sweeps, 2, "the sweeper has ended")
				requireEmpty(t, r)
			})
		})
	}
}

// While Shutdown waits, MaxHold still ends holders.
func TestShutdownWithMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{MaxHold: 5 * time.Minute})
		s := take(t, r, acmeGLM)
		ctx := s.Context(t.Context())
		go func() {
			<-ctx.Done()
			s.Release()
		}()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, r.Shutdown(short))
		start := time.Now()
		require.NoError(t, r.Shutdown(t.Context()))
		require.Equal(t, 6*time.Minute-time.Second, time.Since(start))
		require.Equal(t, inflight.ErrHeldTooLong, context.Cause(ctx))
	})
}
