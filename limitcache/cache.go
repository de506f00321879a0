// Package limitcache gives a registry limits that live in a database or behind a service. It fetches the limits of a key
// when they are first asked for, keeps them, and refreshes them in the background:
//
//	cache, err := limitcache.New(limitcache.Config{Fetch: limitsFromDatabase})
//	// ...
//	defer cache.Close()
//	registry, err := inflight.New(inflight.Config{Limits: cache.Limits})
//
// What is cached is the limit, never the count. Limits may go stale, be evicted or be unknown while slots are held; the
// slots stay counted all the same, because the registry counts its holders and asks here only how many there may be.
//
// For limits that fit into memory, or that a file holds, take [inflight.LimitTable]: it never waits and never fails.
package limitcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/inflight-go/inflight"
)

// ErrNotFound is what Fetch returns, wrapped or not, if no limits are set for the key. It is no failure: Config.Default
// takes the place of the limits, also of those that were set before, for Config.NegativeTTL.
var ErrNotFound = errors.New("limitcache: no limits are set for the key")

// Config says where limits come from and how long they are kept. Only Fetch is required.
type Config struct {
	// Fetch reads the limits of a key. It is called by many goroutines at once, for one key by one at a time, unless the
	// key is invalidated while it runs. It should return when its context ends, which is after Timeout and with Close:
	// what it returns later is dropped, and another call may have begun by then. ErrNotFound says that no limits are set.
	// A panic is an error, and so are limits below inflight.Blocked. Fetch must not look up its own key in the cache.
	Fetch func(ctx context.Context, k inflight.Key) (inflight.Limits, error)

	// Default are the limits of a key that has none: none are set, or no fetch has succeeded yet.
	Default inflight.Limits

	TTL         time.Duration // limits older than this are refreshed at the next look-up; 0 means 300 s
	NegativeTTL time.Duration // the same after ErrNotFound; 0 means 10 s
	Timeout     time.Duration // of one fetch, and so the longest that a look-up waits; 0 means 2 s

	// After a failed fetch the next one waits for RetryMin, after each further failure in a row twice as long, up to
	// RetryMax. 0 means 1 s and 30 s.
	RetryMin, RetryMax time.Duration

	// MaxKeys is how many keys are kept, 0 means 100,000. Beyond it, those go that were used least lately and least often.
	// It should exceed the number of keys in use: the look-up of a key that was evicted waits for a fetch again, also
	// when the registry reads the limits of its waiters, one key after the other.
	MaxKeys int

	// OnChange is called when limits may have changed that were given out before: a refresh brought other ones, or an
	// Invalidate method was called. Wire it to Registry.LimitsChanged, so that raised limits let waiters in at once
	// rather than at the next sweep. It is called outside all locks, by several goroutines at once if need be: that of
	// the refresh, or that of the caller of Invalidate. It may call every method of the cache but Close.
	OnChange func()

	Logger *slog.Logger // nil means slog.Default()
}

// A Cache holds limits by key. Its method Limits is the limit function of a registry. A cache is safe for concurrent use
// and must not be copied.
type Cache struct {
	cfg    Config
	cached *otter.Cache[inflight.Key, *entry]
	loader *loader

	// gone has the limits of keys that are no longer cached, as they were last known, in case they cannot be fetched again.
	gone *otter.Cache[inflight.Key, inflight.Limits]

	open  context.Context //nolint:containedctx // what background fetches run under, ends with Close
	ended context.Context //nolint:containedctx // one that has ended, for look-ups that must not wait
	end   context.CancelFunc

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup           // what runs in the background; nothing is added once closed
	firsts map[*loader]inflight.Key // look-ups that wait, with their keys
}

// New returns a cache. An error names the field of Config that is wrong.
func New(cfg Config) (*Cache, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Cache{cfg: cfg, firsts: make(map[*loader]inflight.Key)}
	c.loader = &loader{cache: c}
	var err error
	c.gone, err = otter.New(&otter.Options[inflight.Key, inflight.Limits]{MaximumSize: cfg.MaxKeys, Executor: c.execute})
	if err != nil {
		return nil, fmt.Errorf("limitcache: %w", err)
	}
	c.cached, err = otter.New(&otter.Options[inflight.Key, *entry]{
		MaximumSize: cfg.MaxKeys,
		RefreshCalculator: otter.RefreshWritingFunc(func(e otter.Entry[inflight.Key, *entry]) time.Duration {
			return e.Value.freshFor
		}),
		OnAtomicDeletion: c.dropped,
		OnDeletion:       c.replaced,
		Executor:         c.execute,
	})
	if err != nil {
		return nil, fmt.Errorf("limitcache: %w", err)
	}
	c.ended, c.end = context.WithCancel(context.Background())
	c.end()
	c.open, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Limits returns the limits of k. It is an [inflight.LimitFunc], and keeps to its rule not to block with one exception:
// the first look-up of a key waits for the fetch, at most for Config.Timeout, and so does the first one after the key was
// invalidated or evicted. Look-ups at the same time share one fetch. All others return what is cached, however old. If it
// is older than its TTL, the look-up starts a refresh in the background.
//
// Config.Default is returned as long as no fetch has succeeded. A fetch that fails leaves the limits as they were last
// known, also if they were invalidated since; the failure is logged once per key and TTL. After Close nothing is fetched
// any more.
func (c *Cache) Limits(k inflight.Key) inflight.Limits {
	// A context that has ended does not keep a refresh from starting, and makes an error of what would be a load.
	e, err := c.cached.Get(c.ended, k, c.loader)
	if err != nil {
		return c.first(k)
	}
	return e.limits
}

// Invalidate drops the limits of k: the next look-up waits for a fetch, and one that runs already no longer counts. Only
// if the fetch fails are the dropped limits served on, until one succeeds. Then it calls OnChange.
func (c *Cache) Invalidate(k inflight.Key) {
	c.cached.Invalidate(k)
	c.changed()
}

// InvalidateOrg does what Invalidate does, for all keys of an organisation, and calls OnChange once. It looks at every
// key in the cache.
func (c *Cache) InvalidateOrg(org string) {
	c.invalidate(func(k inflight.Key) bool { return k.Org == org })
}

// InvalidateAll does what Invalidate does, for all keys, and calls OnChange once.
func (c *Cache) InvalidateAll() {
	c.invalidate(func(inflight.Key) bool { return true })
}

// Close cancels the fetches that run, and waits until they and OnChange have returned: a Fetch that ignores its context
// holds it up. From then on Limits returns what is cached, and Config.Default for other keys. Close must not be called
// from Fetch, OnChange or a handler of the logger. It always returns nil; to call it again does nothing.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.tasks.Wait()
	return nil
}

// complete sets the defaults of cfg.
func (cfg *Config) complete() error {
	if cfg.Fetch == nil {
		return errors.New("limitcache: Config.Fetch is nil")
	}
	if err := check(cfg.Default); err != nil {
		return fmt.Errorf("limitcache: Config.Default: %w", err)
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		unset time.Duration
	}{
		{"TTL", &cfg.TTL, 300 * time.Second},
		{"NegativeTTL", &cfg.NegativeTTL, 10 * time.Second},
		{"Timeout", &cfg.Timeout, 2 * time.Second},
		{"RetryMin", &cfg.RetryMin, time.Second},
		{"RetryMax", &cfg.RetryMax, max(30*time.Second, cfg.RetryMin)},
	} {
		if *d.value < 0 {
			return fmt.Errorf("limitcache: Config.%s is %v, must not be negative", d.field, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.unset
		}
	}
	if cfg.RetryMax < cfg.RetryMin {
		return fmt.Errorf("limitcache: Config.RetryMax is %v, less than RetryMin, %v", cfg.RetryMax, cfg.RetryMin)
	}
	if cfg.MaxKeys < 0 {
		return fmt.Errorf("limitcache: Config.MaxKeys is %d, must not be negative", cfg.MaxKeys)
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = 100_000
	}
	return nil
}

// first looks up a key that is not cached.
func (c *Cache) first(k inflight.Key) inflight.Limits {
	l := &loader{cache: c}
	c.mu.Lock()
	c.firsts[l] = k
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.firsts, l)
	}()
	ctx, cancel := context.WithTimeout(c.open, c.cfg.Timeout)
	defer cancel()
	e, err := c.cached.Get(ctx, k, l)
	if err != nil {
		return c.lastKnown(k)
	}
	return e.limits
}

// lastKnown returns the limits of a key that is not cached and cannot be fetched.
func (c *Cache) lastKnown(k inflight.Key) inflight.Limits {
	if l, ok := c.gone.GetIfPresent(k); ok {
		return l
	}
	return c.cfg.Default
}

// invalidate drops what is cached for the keys that match, and what fetches that run now will bring. Keys that are looked
// up for the first time are not in the cache yet. They come first: they leave firsts when their limits are cached, so a
// key that is no longer in the one place is in the other.
func (c *Cache) invalidate(match func(inflight.Key) bool) {
	c.mu.Lock()
	keys := slices.Collect(maps.Values(c.firsts))
	c.mu.Unlock()
	for k := range c.cached.Keys() {
		keys = append(keys, k)
	}
	for _, k := range keys {
		if match(k) {
			c.cached.Invalidate(k)
		}
	}
	c.changed()
}

// dropped is called while what is cached of a key goes away.
func (c *Cache) dropped(old otter.DeletionEvent[inflight.Key, *entry]) {
	if old.Cause != otter.CauseReplacement {
		c.gone.Set(old.Key, old.Value.limits)
	}
}

// replaced is called after a refresh, when look-ups find what it brought.
func (c *Cache) replaced(old otter.DeletionEvent[inflight.Key, *entry]) {
	if old.Cause != otter.CauseReplacement {
		return
	}
	if now, ok := c.cached.GetEntryQuietly(old.Key); ok && now.Value.limits == old.Value.limits {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.logger().Error("limitcache: OnChange panicked", "panic", v)
		}
	}()
	c.changed()
}

func (c *Cache) changed() {
	if c.cfg.OnChange != nil {
		c.cfg.OnChange()
	}
}

// execute runs a task of the cache in the background. Close waits for it, unless it comes after Close, when it is only
// bookkeeping.
func (c *Cache) execute(task func()) {
	if !c.start(task) {
		go task()
	}
}

// start runs task in the background, or returns false if the cache is closed.
func (c *Cache) start(task func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(task)
	return true
}

func (c *Cache) logger() *slog.Logger {
	if c.cfg.Logger == nil {
		return slog.Default()
	}
	return c.cfg.Logger
}
