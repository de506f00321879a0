package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// The tests in e2e have a real Redis, this one is in Go. A new Redis has no data, and learns for as long as a fleet says;
// this one has learned already, from a fleet that was in a hurry.
func usedRedis(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	registry, err := inflight.New(inflight.Config{SweepInterval: -1})
	require.NoError(t, err)
	first, err := fleet.New(t.Context(), client, registry, fleet.Config{TTL: time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return first.Stats().Learning == 0 }, soon, tick)
	require.NoError(t, first.Close(t.Context()))
	return server
}

// startShared starts the command on a Redis, with a limit of so many per key.
func startShared(t *testing.T, server *miniredis.Miniredis, limit string, args ...string) *program {
	t.Helper()
	limits := filepath.Join(t.TempDir(), "limits.json")
	require.NoError(t, os.WriteFile(limits, []byte(`{"defaults":{"key":`+limit+`}}`), 0o600))
	return start(t, append([]string{"-tokens-per-second", "1", "-limits", limits, "-redis", "redis://" + server.Addr()}, args...)...)
}

// begins waits until there is room for another stream.
func (p *program) begins(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return p.do(t, http.MethodPost, chatPath, ask(`"stream":true,"max_tokens":1000`)).StatusCode == http.StatusOK
	}, soon, tick)
}

func TestGatewaysShareLimits(t *testing.T) {
	server := usedRedis(t)
	a, b := startShared(t, server, "3"), startShared(t, server, "3")
	require.Contains(t, a.out, "together with all gateways on the Redis at "+server.Addr())
	require.True(t, b.logged("level=INFO", "limits are shared", "gateways=2"), b.log)
	first := a.stream(t, chatPath, "1000")
	a.stream(t, messagesPath, "1000")
	b.stream(t, chatPath, "1000")
	a.refuses(t, ask(`"stream":true`))
	b.refuses(t, ask(`"stream":true`))
	require.Contains(t, text(t, a.do(t, http.MethodGet, "/metrics", "")), "\n"+`inflight_fleet_leases{registry="gateway"} `)

	require.NoError(t, first.Body.Close())
	b.begins(t)
	a.refuses(t, ask(`"stream":true`))
}

// Who drains gives back at once what others would else have to wait for. That is long: a lease holds for 30 s.
func TestDrainGivesBackWhatIsShared(t *testing.T) {
	server := usedRedis(t)
	a, b := startShared(t, server, "2"), startShared(t, server, "2")
	for range 2 {
		require.NoError(t, a.stream(t, chatPath, "1000").Body.Close())
	}
	a.stop()
	require.Equal(t, 0, <-a.exit)
	require.Contains(t, a.log.String(), "0 slots left")
	b.begins(t)
	b.begins(t)
	b.refuses(t, ask(`"stream":true`))
}

func TestSharedDrainSaysWhatIsLeft(t *testing.T) {
	p := startShared(t, usedRedis(t), "2", "-drain", "20ms")
	p.stream(t, chatPath, "1000")
	p.stop()
	require.Equal(t, 1, <-p.exit)
	require.Contains(t, p.log.String(), "1 slot left")
}

func TestNewRedis(t *testing.T) {
	p := startShared(t, miniredis.RunT(t), "4")
	require.True(t, p.logged("level=WARN", "for now nothing is admitted", "at_most=30s"), p.log)
	p.refuses(t, ask(`"stream":true`))

	p = startShared(t, miniredis.RunT(t), "4", "-processes", "2")
	require.True(t, p.logged("level=WARN", "admits its part of every limit", "at_most=30s", "parts=2"), p.log)
	p.stream(t, chatPath, "1000")
	p.stream(t, chatPath, "1000")
	p.refuses(t, ask(`"stream":true`))
}

// A Redis that is away keeps no gateway from starting, serving as -fallback says, and draining.
func TestRedisIsAway(t *testing.T) {
	p := start(t, "-tokens-per-second", "1", "-redis", "redis://127.0.0.1:1", "-fallback", "open")
	require.True(t, p.logged("engine not reached", "fallback=open"), p.log)
	require.NoError(t, p.stream(t, chatPath, "1000").Body.Close())
	p.stop()
	require.Equal(t, 0, <-p.exit)
	require.Contains(t, p.log.String(), "other gateways do not know yet")
	require.Contains(t, p.log.String(), "0 slots left")
}

func TestRedisRefusesThePassword(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("secret")
	t.Setenv(redisVar, "redis://:wrong@"+server.Addr())
	var out, log bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-addr", "127.0.0.1:0"}, &out, &log))
	require.Contains(t, log.String(), "refused by the engine: ")
	require.Contains(t, log.String(), "WRONGPASS")
	require.Empty(t, out.String())
}

// Errors must not tell passwords to whoever reads the log.
func TestBadRedisURL(t *testing.T) {
	for _, url := range []string{"redis://:secret@bad host", "redis://:secret@host:port", "http://:secret@host", "redis://:secret@host/x"} {
		t.Setenv(redisVar, url)
		var log strings.Builder
		require.Equal(t, 2, run(t.Context(), nil, &log, &log), url)
		require.Contains(t, log.String(), "-redis must look like", url)
		require.NotContains(t, log.String(), "secret")
	}
}
