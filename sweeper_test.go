package inflight_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
)

// The sweeper sweeps each interval, a minute unless it is set, until the registry is closed.
func TestSweepInterval(t *testing.T) {
	for name, test := range map[string]struct {
		set, interval time.Duration
		sweeps        int
	}{
		"default": {0, time.Minute, 10},
		"set":     {time.Second, time.Second, 10},
		"none":    {-1, 24 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sweeps atomic.Int32
				r := registryOf(t, inflight.Config{
					SweepInterval: test.set, OnSweep: func(inflight.SweepReport) { sweeps.Add(1) },
				})
				time.Sleep(test.interval - 1)
				synctest.Wait()
				require.Zero(t, sweeps.Load())
				time.Sleep(10 * test.interval)
				synctest.Wait()
				require.EqualValues(t, test.sweeps, sweeps.Load())
				require.NoError(t, r.Close())
				time.Sleep(10 * test.interval)
				require.EqualValues(t, test.sweeps, sweeps.Load())
			})
		})
	}
}

// Close ends the sweeper, and waits for a sweep that is on its way.
func TestCloseWaitsForTheSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, end := make(chan struct{}), make(chan struct{})
		var swept, closed atomic.Bool
		r := registryOf(t, inflight.Config{OnSweep: func(inflight.SweepReport) {
			close(began)
			<-end
			swept.Store(true)
		}})
		<-began
		go func() {
			_ = r.Close()
			closed.Store(true)
		}()
		synctest.Wait()
		require.False(t, closed.Load())
		close(end)
		synctest.Wait()
		require.True(t, swept.Load())
		require.True(t, closed.Load())
	})
}

// A registry that nobody closed and nobody refers to is collected, and its sweeper ends.
func TestAbandonedRegistry(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, r *inflight.Registry){
		"unused": func(*testing.T, *inflight.Registry) {},
		"swept":  func(_ *testing.T, r *inflight.Registry) { r.Sweep() },
		"with a dropped slot": func(t *testing.T, r *inflight.Registry) {
			t.Helper()
			take(t, r, acmeGLM)                                               //slotvet:ignore dropped on purpose
			requireLive(t, take(t, r, acmeGLM).Context(context.Background())) //slotvet:ignore dropped on purpose
		},
		"with a dropped slot that a sweep has seen": func(t *testing.T, r *inflight.Registry) {
			t.Helper()
			take(t, r, acmeGLM) //slotvet:ignore dropped on purpose
			r.Sweep()
		},
	} {
		t.Run(name, func(t *testing.T) {
			current := goleak.IgnoreCurrent()
			gone := abandon(t, use)
			require.Eventually(t, func() bool {
				runtime.GC()
				return gone.Value() == nil
			}, 10*time.Second, time.Millisecond)
			goleak.VerifyNone(t, current)
		})
	}
}

//go:noinline
func abandon(t *testing.T, use func(*testing.T, *inflight.Registry)) weak.Pointer[inflight.Registry] {
	t.Helper()
	r, err := inflight.New(inflight.Config{SweepInterval: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	use(t, r)
	return weak.Make(r)
}

// A slot that is held keeps its registry, and the sweeper with it.
func TestHeldSlotKeepsTheRegistry(t *testing.T) {
	var swept atomic.Int64
	cfg := inflight.Config{SweepInterval: time.Millisecond, OnSweep: func(inflight.SweepReport) { swept.Add(1) }}
	s, closeIt := func() (*inflight.Slot, func() error) {
		r, err := inflight.New(cfg)
		require.NoError(t, err)
		s := take(t, r, acmeGLM)
		gone := weak.Make(r)
		return s, func() error { return gone.Value().Close() }
	}()
	for range 3 {
		runtime.GC()
		before := swept.Load()
		require.Eventually(t, func() bool { return swept.Load() > before }, 10*time.Second, time.Millisecond)
	}
	s.Release()
	require.NoError(t, closeIt())
	runtime.KeepAlive(s)
}

// A hook that panics is logged, and the sweeper goes on.
func TestSweeperSurvivesAPanickingHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := new(records)
		sweeps := 0
		registryOf(t, inflight.Config{Name: "edge", Logger: slog.New(logs), OnSweep: func(inflight.SweepReport) {
			sweeps++
			panic("from the hook")
		}})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Equal(t, 3, sweeps)
		line := record{slog.LevelError, "inflight: sweep panicked", map[string]any{"registry": "edge", "panic": "from the hook"}}
		require.Equal(t, []record{line, line, line}, logs.take())
	})
}

// A sweep by hand calls OnSweep too, and a panic in it goes on to the caller and leaves no lock behind.
func TestSweepByHandCallsTheHook(t *testing.T) {
	var reports []inflight.SweepReport
	r := registryOf(t, inflight.Config{SweepInterval: -1, OnSweep: func(rep inflight.SweepReport) {
		if reports = append(reports, rep); len(reports) > 1 {
			panic("from the hook")
		}
	}})
	require.Equal(t, []inflight.SweepReport{r.Sweep()}, reports)
	require.PanicsWithValue(t, "from the hook", func() { r.Sweep() })
	soon(t, func() { r.InUse(acmeGLM) })
}

// Hooks may call every method but Close and Shutdown, from wherever they are called.
func TestHooksMayCallTheRegistry(t *testing.T) {
	for _, acting := range []string{"limits", "logger", "sweep"} {
		t.Run(acting, func(t *testing.T) {
			var act func() // what the hook does, once the test is set up
			var acts atomic.Int32
			var acted atomic.Bool // a hook that is called because of what a hook does has nothing to do
			hook := func(name string) {
				if act != nil && name == acting && acted.CompareAndSwap(false, true) {
					act()
					acts.Add(1)
					acted.Store(false)
				}
			}
			r := registryOf(t, inflight.Config{
				SweepInterval: -1, LongHeld: 1, MaxHold: 1, Logger: slog.New(&records{hook: func() { hook("logger") }}),
				OnSweep: func(inflight.SweepReport) { hook("sweep") },
				Limits: func(inflight.Key) inflight.Limits {
					hook("limits")
					return inflight.Limits{Key: 1, Org: 10}
				},
			})
			held := take(t, r, acmeGLM)
			ctx, cancel := context.WithCancel(t.Context())
			var waits sync.WaitGroup
			waits.Go(func() { _, _ = r.Acquire(ctx, acmeGLM) }) //slotvet:ignore cancelled while it waits
			require.Eventually(t, func() bool { return len(r.Waiters(0)) == 1 }, 10*time.Second, time.Millisecond)

			act = func() { callEverything(r, held) }
			soon(t, func() {
				r.Sweep()
				r.Sweep()
				r.LimitsChanged()
				r.Keys(0)
				_, _ = r.TryAcquire(acmeGLM)                                //slotvet:ignore it is refused
				_, _ = r.Acquire(t.Context(), acmeGLM, inflight.MaxWait(0)) //slotvet:ignore it is refused
			})
			require.GreaterOrEqual(t, acts.Load(), map[string]int32{"limits": 6, "logger": 2, "sweep": 2}[acting])
			cancel()
			waits.Wait()
			held.Release()
			requireEmpty(t, r)
		})
	}
}

// callEverything calls every method that a hook may call. The key acmeQwen must be free.
func callEverything(r *inflight.Registry, held *inflight.Slot) {
	if s, err := r.TryAcquire(acmeQwen, inflight.Also(zebraYi)); err == nil {
		_ = s.Context(context.Background()).Done()
		r.Cancel(s.ID(), errOwn)
		s.Release()
	}
	if s, err := r.Acquire(context.Background(), acmeQwen); err == nil {
		r.Evict(s.ID())
		s.Release()
	}
	_, _ = r.Acquire(context.Background(), acmeGLM, inflight.MaxWait(time.Millisecond)) //slotvet:ignore it is refused
	_, _, _, _, _ = r.InUse(acmeGLM), r.Stats(), r.Slots(0), r.Waiters(0), r.Keys(0)
	_ = held.Context(context.Background()).Err()
	r.LimitsChanged()
	r.Sweep()
}

// A Logger that panics takes nobody down: the sweeper goes on, the slots are reported, and what it did not log is lost.
func TestSweeperSurvivesAPanickingLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sweeps atomic.Int32
		r := registryOf(t, inflight.Config{
			LongHeld: time.Second, MaxHold: time.Second, Logger: slog.New(&records{hook: func() { panic("from the logger") }}),
			OnSweep: func(inflight.SweepReport) { sweeps.Add(1) },
		})
		s := take(t, r, acmeGLM)
		ctx := s.Context(t.Context())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		requireEnded(t, ctx, inflight.ErrHeldTooLong)
		require.GreaterOrEqual(t, sweeps.Load(), int32(2))
		s.Release()
		requireEmpty(t, r)
	})
}
