package limitcache_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// OnChange is called for what replaces limits that were given out, and for nothing else.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{
			Fetch: db.fetch, Default: inflight.Limits{Key: 3}, OnChange: func() { changes.Add(1) },
		})
		refresh := func(after time.Duration) int64 {
			before := changes.Load()
			time.Sleep(after)
			c.Limits(glm)
			synctest.Wait()
			return changes.Load() - before
		}
		require.Zero(t, refresh(0), "the first fetch")
		require.Zero(t, refresh(300*time.Second), "the same limits")
		db.set(0, errDown, 0)
		require.Zero(t, refresh(300*time.Second), "a failure")
		db.set(20, nil, 0)
		require.Equal(t, int64(1), refresh(time.Second), "other limits")
		db.set(0, limitcache.ErrNotFound, 0)
		require.Equal(t, int64(1), refresh(300*time.Second), "no limits")

		for _, invalidation := range invalidations {
			before := changes.Load()
			invalidation.do(c)
			require.Equal(t, before+1, changes.Load())
		}

		db.set(0, errDown, 0)
		require.Zero(t, refresh(0), "the first fetch fails")
		db.set(10, nil, 0)
		require.Equal(t, int64(1), refresh(time.Second), "the default limits were given out")
	})
}

// Raised limits let a waiter in, whichever way the cache comes to know them, although LimitsChanged asks the cache in turn.
func TestOnChangeLetsWaitersIn(t *testing.T) {
	for name, learn := range map[string]func(*limitcache.Cache){
		"refresh":    func(c *limitcache.Cache) { time.Sleep(300 * time.Second); c.Limits(glm) },
		"invalidate": func(c *limitcache.Cache) { c.Invalidate(glm) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &database{limit: 1}
				var reg *inflight.Registry
				c := newCache(t, limitcache.Config{Fetch: db.fetch, OnChange: func() { reg.LimitsChanged() }})
				reg = newRegistry(t, c.Limits)
				held, err := reg.TryAcquire(glm)
				require.NoError(t, err)
				defer held.Release()
				admitted := make(chan *inflight.Slot)
				go func() {
					s, _ := reg.Acquire(context.Background(), glm)
					admitted <- s
				}()
				synctest.Wait()

				db.set(2, nil, 0)
				learn(c)
				second := <-admitted
				require.NotNil(t, second)
				second.Release()
			})
		})
	}
}

// It runs outside all locks, so it may call the cache; and if it panics, only that call is lost.
func TestOnChangeMayCallTheCacheAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged logLines
		var c *limitcache.Cache
		var calls int
		db := &database{limit: 10}
		c = newCache(t, limitcache.Config{Fetch: db.fetch, Logger: logged.logger(), OnChange: func() {
			if calls++; calls > 1 {
				return
			}
			c.Invalidate(glm)
			c.InvalidateOrg("acme")
			c.InvalidateAll()
			c.Limits(glm)
			panic("boom")
		}})
		c.Limits(glm)
		for limit := range 3 {
			db.set(11+limit, nil, 0)
			time.Sleep(300 * time.Second)
			c.Limits(glm)
			synctest.Wait()
		}
		require.Equal(t, 1, logged.count("level=ERROR", "OnChange panicked", "boom"))
		serves(t, c, glm, 13)
		require.Equal(t, 6, calls)
	})
}

// What happens to a limit in the cache is nothing to the count: 64 held slots stay 64, and the next one is refused.
func TestCountsDoNotDependOnTheCache(t *testing.T) {
	const limit = 64
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: limit}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, MaxKeys: 1})
		reg := newRegistry(t, c.Limits)
		slots := make([]*inflight.Slot, limit)
		for i := range slots {
			var err error
			slots[i], err = reg.TryAcquire(glm)
			require.NoError(t, err)
		}
		full := func() {
			t.Helper()
			synctest.Wait()
			require.Equal(t, limit, reg.InUse(glm))
			_, err := reg.TryAcquire(glm)
			require.ErrorIs(t, err, inflight.ErrLimit)
		}
		time.Sleep(880 * time.Second)
		full()
		for range 10 {
			c.Limits(qwen) // evicts the other
			c.Limits(beta)
		}
		full()
		c.InvalidateAll()
		full()
		require.NoError(t, c.Close())
		full()
		for i, s := range slots {
			s.Release()
			require.Equal(t, limit-1-i, reg.InUse(glm))
		}
	})
}

// With the database gone, limits stay what they were known to be: nothing is admitted beyond them, and nothing less.
func TestDatabaseGone(t *testing.T) {
	const limit = 500
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: limit}
		c := newCache(t, limitcache.Config{Fetch: db.fetch})
		reg := newRegistry(t, c.Limits)
		slots := make([]*inflight.Slot, 0, limit)
		for range limit {
			s, err := reg.TryAcquire(glm)
			require.NoError(t, err)
			slots = append(slots, s)
		}
		db.set(0, errDown, 0)
		for range 100 {
			time.Sleep(time.Minute)
			_, err := reg.TryAcquire(glm)
			require.ErrorIs(t, err, inflight.ErrLimit)
			slots[0].Release()
			s, err := reg.TryAcquire(glm)
			require.NoError(t, err)
			slots = append(slots[1:], s)
			require.Equal(t, limit, reg.InUse(glm))
		}
		for _, s := range slots {
			s.Release()
		}
	})
}
