package limitcache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/inflight-go/inflight"
)

// An entry is what is known of a key. It never changes; a refresh puts another one in its place.
type entry struct {
	limits   inflight.Limits
	freshFor time.Duration // how long it is served before it is refreshed
	failing  bool          // the last fetch failed, and limits are what was known before
	logged   time.Time     // when a failure was logged last; zero: never
}

// A loader fetches limits for the cache: for its first look-up of a key, on the goroutine of the look-up, and for
// refreshes, in the background. Neither returns an error as long as it has had its time: a failure makes an entry too, so
// that it is not tried again at each look-up.
type loader struct {
	cache *Cache
	again bool // the look-up has fetched before, and what it fetched was invalidated
}

// Load implements [otter.Loader] for the first look-up of k.
func (l *loader) Load(ctx context.Context, k inflight.Key) (*entry, error) {
	limits, err := l.cache.fetch(ctx, k)
	if l.again && ctx.Err() != nil {
		return nil, ctx.Err() // it had only what the first fetch left of the time, which says nothing about k
	}
	l.again = true
	return l.cache.next(k, &entry{limits: l.cache.lastKnown(k)}, limits, err), nil
}

// Reload implements [otter.Loader] for the refresh of k.
func (l *loader) Reload(_ context.Context, k inflight.Key, old *entry) (*entry, error) {
	ctx, cancel := context.WithTimeout(l.cache.open, l.cache.cfg.Timeout)
	defer cancel()
	limits, err := l.cache.fetch(ctx, k) //nolint:contextcheck // outlives the look-up that found the limits stale
	return l.cache.next(k, old, limits, err), nil
}

var (
	errClosed = errors.New("limitcache: the cache is closed")
	errExited = errors.New("limitcache: Fetch ended its goroutine")
)

// fetch calls Fetch on a goroutine of its own, so that nothing that it does, not even to ignore ctx, holds up a look-up.
func (c *Cache) fetch(ctx context.Context, k inflight.Key) (inflight.Limits, error) {
	type result struct {
		limits inflight.Limits
		err    error
	}
	done := make(chan result, 1)
	started := c.start(func() {
		got := result{err: errExited}
		defer func() {
			if v := recover(); v != nil {
				got.err = fmt.Errorf("limitcache: Fetch panicked: %v\n%s", v, debug.Stack())
			}
			done <- got
		}()
		got.limits, got.err = c.cfg.Fetch(ctx, k)
	})
	if !started {
		return inflight.Limits{}, errClosed
	}
	select {
	case got := <-done:
		if got.err != nil {
			return inflight.Limits{}, got.err
		}
		return got.limits, check(got.limits)
	case <-ctx.Done():
		return inflight.Limits{}, fmt.Errorf("limitcache: Fetch did not return in time: %w", ctx.Err())
	}
}

// next makes the entry that follows old from the outcome of a fetch, and logs a failure if it is time to.
func (c *Cache) next(k inflight.Key, old *entry, limits inflight.Limits, err error) *entry {
	switch {
	case err == nil:
		return &entry{limits: limits, freshFor: c.cfg.TTL}
	case errors.Is(err, ErrNotFound):
		return &entry{limits: c.cfg.Default, freshFor: c.cfg.NegativeTTL, logged: old.logged}
	}
	e := &entry{limits: old.limits, freshFor: c.cfg.RetryMin, failing: true, logged: old.logged}
	if old.failing {
		e.freshFor = old.freshFor + min(old.freshFor, c.cfg.RetryMax-old.freshFor)
	}
	if now := time.Now(); c.open.Err() == nil && (old.logged.IsZero() || now.Sub(old.logged) >= c.cfg.TTL) {
		e.logged = now
		c.logger().Warn("limitcache: fetch failed, limits stay as they were",
			"key", k.String(), "err", err, "retry_after", e.freshFor)
	}
	return e
}

// check returns an error if l is not what limits can be.
func check(l inflight.Limits) error {
	for _, f := range []struct {
		name  string
		limit int
	}{{"Key", l.Key}, {"Org", l.Org}, {"Model", l.Model}, {"Total", l.Total}} {
		if f.limit < inflight.Blocked {
			return fmt.Errorf("limitcache: Limits.%s is %d: use inflight.Blocked (%d) to admit nothing",
				f.name, f.limit, inflight.Blocked)
		}
	}
	return nil
}
