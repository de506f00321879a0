package limitcache_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

var (
	glm  = inflight.Key{Org: "acme", Model: "glm"}
	qwen = inflight.Key{Org: "acme", Model: "qwen"}
	beta = inflight.Key{Org: "beta", Model: "glm"}

	errDown = errors.New("database is down")
)

// A database is where limits live: the same for every key, read when a fetch begins and returned when it ends.
type database struct {
	mu      sync.Mutex
	limit   int
	err     error
	delay   time.Duration
	fetched []inflight.Key
}

func (d *database) fetch(ctx context.Context, k inflight.Key) (inflight.Limits, error) {
	d.mu.Lock()
	limit, err, delay := d.limit, d.err, d.delay
	d.fetched = append(d.fetched, k)
	d.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return inflight.Limits{}, ctx.Err()
		}
	}
	return inflight.Limits{Key: limit}, err
}

// set changes what fetches that begin from now on return, and how long they take.
func (d *database) set(limit int, err error, delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit, d.err, d.delay = limit, err, delay
}

// fetches is how often limits were asked for.
func (d *database) fetches() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.fetched)
}

// newCache returns a cache that is closed when the test ends. Without a logger it logs nothing.
func newCache(t *testing.T, cfg limitcache.Config) *limitcache.Cache {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := limitcache.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// newRegistry returns a registry without a sweeper that asks limits.
func newRegistry(t *testing.T, limits inflight.LimitFunc) *inflight.Registry {
	t.Helper()
	r, err := inflight.New(inflight.Config{
		Limits: limits, SweepInterval: -1, MaxWaitersPerKey: -1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// took is how long f took.
func took(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// serves checks that the limit of k is what it should be, and that the look-up does not wait.
func serves(t *testing.T, c *limitcache.Cache, k inflight.Key, limit int) {
	t.Helper()
	waited := took(func() { require.Equal(t, limit, c.Limits(k).Key) })
	require.Zero(t, waited)
}

// logLines collects what is logged.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count is how many lines have all of the words.
func (l *logLines) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
lines:
	for line := range strings.Lines(l.buf.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}
