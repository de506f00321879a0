package inflight_test

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// newRegistry returns a registry with these limits for every key, that logs nothing and sweeps by hand only.
func newRegistry(t *testing.T, limits inflight.Limits) *inflight.Registry {
	t.Helper()
	return registryOf(t, inflight.Config{Limits: inflight.Fixed(limits), SweepInterval: -1})
}

// registryOf returns a registry that is closed when the test ends. Without a logger it logs nothing.
func registryOf(t *testing.T, cfg inflight.Config) *inflight.Registry {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := inflight.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// take takes a slot, for which there must be room.
func take(t *testing.T, r *inflight.Registry, k inflight.Key, opts ...inflight.Option) *inflight.Slot {
	t.Helper()
	s, err := r.TryAcquire(k, opts...)
	require.NoError(t, err)
	require.NotNil(t, s)
	return s
}

// refuses checks that TryAcquire finds no room.
func refuses(t *testing.T, r *inflight.Registry, k inflight.Key, opts ...inflight.Option) {
	t.Helper()
	require.Error(t, refused(t, r, k, opts...))
}

// refused is the error of TryAcquire, which must find no room.
func refused(t *testing.T, r *inflight.Registry, k inflight.Key, opts ...inflight.Option) *inflight.LimitError {
	t.Helper()
	s, err := r.TryAcquire(k, opts...)
	require.Nil(t, s)
	return asLimitError(t, err)
}

// admits checks that there is room for n slots more, and no more. It gives them back.
func admits(t *testing.T, r *inflight.Registry, k inflight.Key, n int) {
	t.Helper()
	for range n {
		defer take(t, r, k).Release()
	}
	refuses(t, r, k)
}

// releaseAll releases slots.
func releaseAll(slots []*inflight.Slot) {
	for _, s := range slots {
		s.Release()
	}
}

// requireEmpty checks that nobody holds or waits, and that nothing is left behind.
func requireEmpty(t *testing.T, r *inflight.Registry) {
	t.Helper()
	s := r.Stats()
	require.Zero(t, s.InUse, "in use")
	require.Zero(t, s.Holders, "holders")
	require.Zero(t, s.Waiters, "waiters")
	require.Zero(t, s.Keys, "keys")
	require.Zero(t, s.MaxPerKey, "in use of one key")
	require.Zero(t, s.OldestHeld, "age of the oldest")
	require.Empty(t, r.Slots(0))
	require.Empty(t, r.Keys(0))
	require.Zero(t, r.Gates(), "limits that are kept count of")
	require.Equal(t, s.Admitted, s.Released+s.Evicted+s.Reclaimed, "every slot came back in one way")
}

// soon runs f and fails if it does not return, which is what a deadlock looks like.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "deadlock")
	}
}

// heap is how many bytes are in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// sized is how many of n are enough for the way in which the tests run: fewer when they shall be short, and under the
// race detector, which takes ten times as long to find nothing new in the next 100,000.
func sized(n int) int {
	if testing.Short() {
		return n / 20
	}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return n / 5
	}
	return n
}

// A record is what was logged.
type record struct {
	level   slog.Level
	message string
	attrs   map[string]any
}

// records is a slog.Handler that remembers, and calls hook, if set, for each record.
type records struct {
	hook func()

	mu  sync.Mutex
	all []record
}

func (*records) Enabled(context.Context, slog.Level) bool { return true }
func (h *records) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *records) WithGroup(string) slog.Handler          { return h }

func (h *records) Handle(_ context.Context, r slog.Record) error {
	attrs := make(map[string]any)
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.Any()
		return true
	})
	h.mu.Lock()
	h.all = append(h.all, record{r.Level, r.Message, attrs})
	h.mu.Unlock()
	if h.hook != nil {
		h.hook()
	}
	return nil
}

// take returns what was logged since it was last asked.
func (h *records) take() []record {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all
	h.all = nil
	return all
}
