//go:build unix

package fleet_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

// A fleet works by all kinds of connections.
func TestConnections(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) func() redis.UniversalClient{
		"with the defaults": func(t *testing.T) func() redis.UniversalClient {
			t.Helper()
			server := redistest.Start(t)
			return func() redis.UniversalClient { return server.Client() }
		},
		"over TLS": func(t *testing.T) func() redis.UniversalClient {
			t.Helper()
			server := redistest.Start(t, redistest.TLS(t))
			return func() redis.UniversalClient { return server.Client(recommended) }
		},
		"to a cluster": func(t *testing.T) func() redis.UniversalClient {
			t.Helper()
			cluster := redistest.StartCluster(t, 3)
			return func() redis.UniversalClient { return cluster.Client() }
		},
		"far away": func(t *testing.T) func() redis.UniversalClient {
			t.Helper()
			proxy := redistest.StartProxy(t, redistest.Start(t))
			return func() redis.UniversalClient {
				client := proxy.Client(recommended)
				proxy.Delay(100 * time.Millisecond)
				return client
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			a, b := peerOf(t, client(), 10, fleet.Config{}), peerOf(t, client(), 10, fleet.Config{})
			held := a.get(acme, 7)
			rest := b.get(acme, 3)
			a.refuses(acme)
			b.refuses(acme)
			waiter := b.waiter(acme)
			held.Release()
			require.NoError(t, <-waiter)
			rest.Release()
			require.NoError(t, a.Close(t.Context()))
			b.get(acme, 10).Release()
			require.NoError(t, b.Close(t.Context()))
			require.Zero(t, a.Stats().Lost+b.Stats().Lost)
		})
	}
}

// When one node of a cluster is down, its shards fall, and no others.
func TestClusterLosesANode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	a := peerOf(t, cluster.Client(), 10, fleet.Config{Fallback: fleet.Closed})
	keys := make([]inflight.Key, 12)
	for i := range keys {
		keys[i].Org = string(rune('a' + i))
		a.get(keys[i], 1).Release()
	}
	all := a.Stats()
	cluster.Node(0).Kill()
	eventually(t, func() bool { return a.Stats().Fallback > 0 && time.Since(a.Stats().LastSync) > brief }, "no shard falls")
	time.Sleep(brief)
	fallen := a.Stats().Fallback
	require.Less(t, fallen, all.Shards)
	refused := 0
	for _, k := range keys {
		s, ok := a.try(k)
		if ok {
			s.Release()
		} else {
			refused++
		}
	}
	require.Positive(t, refused)
	require.Less(t, refused, len(keys))

	cluster.Node(0).Restart()
	cluster.Await()
	a.recovered()
	for _, k := range keys {
		a.get(k, 10).Release()
	}
}

// A server that has lost everything grants nothing until all have had the time to say what they have.
func TestServerBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server){
		"flushed": (*redistest.Server).Flush,
		"restarted with nothing": func(s *redistest.Server) {
			s.RestartEmpty()
		},
		"restarted with old data": func(s *redistest.Server) {
			s.Exec("SAVE")
			time.Sleep(brief + brief/2) // until all that was saved has lapsed
			s.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			a, b := peerOf(t, server.Client(recommended), 10, fleet.Config{}), peerOf(t, server.Client(recommended), 10, fleet.Config{})
			held := []*inflight.Slot{a.get(acme, 1)}
			elsewhere := []*inflight.Slot{b.get(acme, 1)}
			held = append(held, a.fill(acme)...)
			elsewhere = append(elsewhere, b.fill(acme)...)
			require.LessOrEqual(t, len(held)+len(elsewhere), 10)
			lose(server)
			eventually(t, func() bool { return a.Stats().Lost > 0 && b.Stats().Lost > 0 }, "it is not noticed")
			held = append(held, a.fill(acme)...)
			elsewhere = append(elsewhere, b.fill(acme)...)
			require.LessOrEqual(t, len(held)+len(elsewhere), 10)
			a.recovered()
			b.recovered()
			held = append(held, a.fill(acme)...)
			elsewhere = append(elsewhere, b.fill(acme)...)
			require.LessOrEqual(t, len(held)+len(elsewhere), 10)
			a.goOn(acme, held)
			b.goOn(acme, elsewhere)
			a.get(acme, 10).Release()
		})
	}
}

// A server that is away for less than the TTL changes nothing for who has been granted enough.
func TestServerIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := peerOf(t, server.Client(recommended), 100, fleet.Config{Fallback: fleet.Closed})
	a.get(acme, 10).Release()
	failed := a.Stats().Failed
	server.Stop()
	for range 10 {
		s, ok := a.try(acme)
		require.True(t, ok)
		s.Release()
		time.Sleep(tick)
	}
	server.Continue()
	a.recovered()
	require.LessOrEqual(t, a.Stats().Failed, failed+shards)
	require.Zero(t, a.Stats().Lost)
}

func TestFallbackOfARunningFleet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fallback fleet.Fallback
		admits   int
	}{
		"share":  {fleet.Share, 5},
		"open":   {fleet.Open, 10},
		"closed": {fleet.Closed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			cfg := fleet.Config{Fallback: tc.fallback}
			a, b := peerOf(t, server.Client(recommended), 10, cfg), peerOf(t, server.Client(recommended), 10, cfg)
			a.recovered()
			b.recovered()
			server.Kill()
			a.fallen()
			b.fallen()
			held, elsewhere := a.fill(acme), b.fill(acme)
			require.Len(t, held, tc.admits)
			require.Len(t, elsewhere, tc.admits)
			a.goOn(acme, held)
			b.goOn(acme, elsewhere)
		})
	}
}

// A client that was closed is a server that is away for ever.
func TestClientIsClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(recommended)
	a := peerOf(t, client, 10, fleet.Config{})
	held := []*inflight.Slot{a.get(acme, 1)}
	require.NoError(t, client.Close())
	a.fallen()
	held = append(held, a.fill(acme)...)
	require.Len(t, held, 10)
	a.goOn(acme, held)
	require.ErrorIs(t, a.Close(t.Context()), redis.ErrClosed)
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestWarnsOfEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Args("--maxmemory-policy", "allkeys-lru"))
	log := new(lines)
	logger := slog.New(slog.NewTextHandler(log, nil))
	a := peerOf(t, server.Client(recommended), 10, fleet.Config{Logger: logger})
	require.Contains(t, log.String(), "set its maxmemory-policy to noeviction")
	require.Contains(t, log.String(), "policy=allkeys-lru")
	require.Equal(t, "allkeys-lru", a.Stats().MaxmemoryPolicy)

	server.Exec("CONFIG", "SET", "maxmemory-policy", "noeviction")
	log = new(lines)
	b := peerOf(t, server.Client(recommended), 10, fleet.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.Equal(t, "noeviction", b.Stats().MaxmemoryPolicy)
	require.Empty(t, log.String())
}
