package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/modelstore"
)

// newRegistry returns a registry that is closed when the test ends.
func newRegistry(t *testing.T, limits inflight.Limits) *inflight.Registry {
	t.Helper()
	reg, err := inflight.New(inflight.Config{Limits: inflight.Fixed(limits), Logger: silent(), SweepInterval: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reg.Close()) })
	return reg
}

// requireAlone checks that the limits of a registry are its own.
func requireAlone(t *testing.T, reg *inflight.Registry) {
	t.Helper()
	s, err := reg.TryAcquire(acme)
	require.NoError(t, err)
	s.Release()
}

func TestNewWantsAClientAndARegistry(t *testing.T) {
	_, err := fleet.New(t.Context(), nil, newRegistry(t, inflight.Limits{}), fleet.Config{})
	require.EqualError(t, err, "inflight: fleet.New: nil client")
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, client.Close()) }()
	_, err = fleet.New(t.Context(), client, nil, fleet.Config{})
	require.EqualError(t, err, "inflight: fleet.New: nil registry")
}

func TestNewChecksTheConfig(t *testing.T) {
	for _, tc := range []struct {
		cfg  fleet.Config
		want string
	}{
		{fleet.Config{Prefix: "a{b"}, "Prefix: must not hold braces"},
		{fleet.Config{Prefix: "a}b"}, "Prefix: must not hold braces"},
		{fleet.Config{Prefix: "a\nb"}, "Prefix: must not hold braces or control characters"},
		{fleet.Config{Shards: -1}, "Shards: must be from 1 to 16384"},
		{fleet.Config{Shards: 16385}, "Shards: must be from 1 to 16384"},
		{fleet.Config{TTL: 100*time.Millisecond - 1}, "TTL: must be at least 100ms"},
		{fleet.Config{TTL: -ttl}, "TTL: must be at least 100ms"},
		{fleet.Config{SyncInterval: -1}, "SyncInterval: must be at least 10ms"},
		{fleet.Config{SyncInterval: time.Millisecond}, "SyncInterval: must be at least 10ms"},
		{fleet.Config{DenialMemory: time.Microsecond}, "DenialMemory: must be at least 1ms"},
		{fleet.Config{SyncInterval: ttl/2 + 1}, "SyncInterval: must be at least 10ms and at most half of TTL"},
		{fleet.Config{TTL: time.Second, SyncInterval: time.Second}, "SyncInterval: must be at least 10ms and at most half of TTL"},
		{fleet.Config{CallTimeout: -1}, "CallTimeout: must be positive"},
		{fleet.Config{CallTimeout: ttl/2 + 1}, "CallTimeout: must be positive and at most half of TTL"},
		{fleet.Config{DenialMemory: -1}, "DenialMemory: must be at least 1ms"},
		{fleet.Config{DenialMemory: ttl/10 + 1}, "DenialMemory: must be at least 1ms and at most 400ms and a tenth of TTL"},
		{fleet.Config{Fallback: 3}, "Fallback: must be Share, Open or Closed"},
		{fleet.Config{Processes: -1}, "Processes: must not be negative"},
	} {
		reg := newRegistry(t, inflight.Limits{})
		_, err := fleet.NewOn(t.Context(), new(modelstore.Store), reg, tc.cfg)
		require.ErrorContains(t, err, "inflight: fleet.Config."+tc.want)
		requireAlone(t, reg)
	}
}

func TestNewTakesARegistryOnce(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 2}, func(w *bubble) {
		a := w.join()
		_, err := fleet.NewOn(w.t.Context(), w, a.Registry(), w.cfg)
		require.ErrorContains(w.t, err, "its limits are leased already")
		a.take(acme).Release()
		time.Sleep(2 * ttl)
		require.Equal(w.t, 1, a.Stats().Processes, "nobody else goes on")
	})
}

func TestNewGoesWithItsContext(t *testing.T) {
	reg := newRegistry(t, inflight.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := fleet.NewOn(ctx, new(modelstore.Store), reg, fleet.Config{})
	require.ErrorIs(t, err, context.Canceled)
	requireAlone(t, reg)
}

// A context that ends later ends nothing.
func TestFleetOutlivesTheContextOfNew(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 2}, func(w *bubble) {
		reg, err := inflight.New(inflight.Config{Limits: w.limitsOf, Logger: silent(), SweepInterval: -1})
		require.NoError(w.t, err)
		ctx, cancel := context.WithCancel(w.t.Context())
		f, err := fleet.NewOn(ctx, w, reg, w.cfg)
		require.NoError(w.t, err)
		cancel()
		time.Sleep(2 * ttl)
		a := &process{f, w}
		a.take(acme).Release()
		a.leave()
	})
}

// What is in use before the limits are leased counts, and stays.
func TestNewCountsWhatIsInUse(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 2}, func(w *bubble) {
		b := w.join()
		reg, err := inflight.New(inflight.Config{Limits: w.limitsOf, Logger: silent(), SweepInterval: -1})
		require.NoError(w.t, err)
		held, err := reg.TryAcquire(acme)
		require.NoError(w.t, err)
		f, err := fleet.NewOn(w.t.Context(), w, reg, w.cfg)
		require.NoError(w.t, err)
		time.Sleep(answer)
		last := b.take(acme)
		b.refuses(acme)
		last.Release()
		held.Release()
		(&process{f, w}).leave()
	})
}

func TestFallbackNames(t *testing.T) {
	require.Equal(t, "share", fleet.Share.String())
	require.Equal(t, "open", fleet.Open.String())
	require.Equal(t, "closed", fleet.Closed.String())
	require.Equal(t, "fallback(9)", fleet.Fallback(9).String())
}

func TestStats(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 10, Org: 20}, func(w *bubble) {
		a, b := w.join(), w.join()
		require.Len(w.t, a.Stats().ID, 32)
		require.NotEqual(w.t, a.Stats().ID, b.Stats().ID)
		held := a.take(acme)
		b.take(acme).Release()
		time.Sleep(3 * syncing)

		s := a.Stats()
		require.Equal(w.t, 2, s.Processes)
		require.Equal(w.t, 16, s.Shards)
		require.Equal(w.t, []int{1, 1}, []int{s.Granted[inflight.ScopeKey], s.Granted[inflight.ScopeOrg]})
		require.Zero(w.t, s.Fallback+s.Learning)
		require.Zero(w.t, s.Failed+s.Lost)
		require.Equal(w.t, s.Calls, s.Latency.Count())
		require.WithinDuration(w.t, time.Now(), s.LastSync, syncing+answer)
		require.Positive(w.t, s.Entries)
		require.Empty(w.t, s.MaxmemoryPolicy)

		rest := b.takeAll(acme, 9)
		b.refuses(acme)
		require.Positive(w.t, b.Stats().Denied)
		releaseAll(rest)
		held.Release()

		w.Down(true)
		time.Sleep(2 * ttl)
		s = a.Stats()
		require.Equal(w.t, 16, s.Fallback)
		require.Positive(w.t, s.Failed)
		require.Greater(w.t, time.Since(s.LastSync), ttl)
		w.Down(false)
		w.Flush()
		time.Sleep(2 * time.Second)
		s = a.Stats()
		require.Equal(w.t, []int{0, 16, 16}, []int{s.Fallback, s.Learning, int(s.Lost)})
	})
}
