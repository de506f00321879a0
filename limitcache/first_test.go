package limitcache_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

func TestFirstLookupWaitsForItsFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: 10, delay: time.Second}
		c := newCache(t, limitcache.Config{Fetch: db.fetch})
		require.Equal(t, time.Second, took(func() { require.Equal(t, 10, c.Limits(glm).Key) }))
		serves(t, c, glm, 10)
		require.Equal(t, []inflight.Key{glm}, db.fetched)
	})
}

// The bound holds whatever Fetch does. Who looks up next does not wait again.
func TestFirstLookupWaitsNoLongerThanTimeout(t *testing.T) {
	for name, deaf := range map[string]bool{"fetch ends with its context": false, "fetch ignores its context": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := make(chan struct{})
				defer close(hangs)
				c := newCache(t, limitcache.Config{
					Default: inflight.Limits{Key: 3},
					Fetch: func(ctx context.Context, _ inflight.Key) (inflight.Limits, error) {
						if !deaf {
							<-ctx.Done()
							return inflight.Limits{}, ctx.Err()
						}
						<-hangs
						return inflight.Limits{Key: 99}, nil
					},
				})
				require.Equal(t, 2*time.Second, took(func() { require.Equal(t, 3, c.Limits(glm).Key) }))
				serves(t, c, glm, 3)
			})
		})
	}
}

func TestFirstLookupsAtTheSameTimeShareAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: 10, delay: time.Second}
		c := newCache(t, limitcache.Config{Fetch: db.fetch})
		got := make(chan int, 1000)
		for range cap(got) {
			go func() { got <- c.Limits(glm).Key }()
		}
		for range cap(got) {
			require.Equal(t, 10, <-got)
		}
		synctest.Wait()
		require.Equal(t, 1, db.fetches())
		require.Zero(t, c.Firsts())
	})
}

// Without a fake clock, the look-ups come at all moments of a load, its end among them.
func TestFirstLookupsShareAFetchWhereverTheyMeetIt(t *testing.T) {
	for range 500 {
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch})
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() { c.Limits(glm) })
		}
		all.Wait()
		require.Equal(t, 1, db.fetches())
	}
}

// A key whose first fetch failed has the default limits, and does not ask again at each look-up.
func TestFirstFetchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{err: errDown, delay: time.Second}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, Default: inflight.Limits{Key: 3}})
		require.Equal(t, time.Second, took(func() { require.Equal(t, 3, c.Limits(glm).Key) }))

		time.Sleep(time.Second - 1)
		serves(t, c, glm, 3)
		require.Equal(t, 1, db.fetches())

		db.set(10, nil, time.Second)
		time.Sleep(time.Nanosecond)
		serves(t, c, glm, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		serves(t, c, glm, 10)
		require.Equal(t, 2, db.fetches())
	})
}

// That a key has no limits is an answer: it replaces what was known, is kept for a short time and is not logged.
func TestNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged logLines
		db := &database{err: limitcache.ErrNotFound}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, Default: inflight.Limits{Key: 3}, Logger: logged.logger()})
		serves(t, c, glm, 3)

		db.set(10, nil, 0)
		time.Sleep(10*time.Second - 1)
		serves(t, c, glm, 3)
		require.Equal(t, 1, db.fetches())
		time.Sleep(time.Nanosecond)
		serves(t, c, glm, 3)
		synctest.Wait()
		serves(t, c, glm, 10)

		db.set(0, limitcache.ErrNotFound, 0)
		time.Sleep(300 * time.Second)
		serves(t, c, glm, 10)
		synctest.Wait()
		serves(t, c, glm, 3)
		require.Zero(t, logged.count())
	})
}

// Whatever goes wrong in Fetch is a failure: it is logged, and limits are the default ones or those that were known.
func TestBadFetch(t *testing.T) {
	for name, bad := range map[string]struct {
		fetch func() (inflight.Limits, error)
		says  string
	}{
		"error": {func() (inflight.Limits, error) { return inflight.Limits{Key: 99}, errDown }, "database is down"},
		"panic": {func() (inflight.Limits, error) { panic("boom") }, "Fetch panicked: boom"},
		"exit":  {func() (inflight.Limits, error) { runtime.Goexit(); panic("unreachable") }, "Fetch ended its goroutine"},
		"key":   {func() (inflight.Limits, error) { return inflight.Limits{Key: -2}, nil }, "Limits.Key is -2"},
		"org":   {func() (inflight.Limits, error) { return inflight.Limits{Org: -2}, nil }, "Limits.Org is -2"},
		"model": {func() (inflight.Limits, error) { return inflight.Limits{Model: -2}, nil }, "Limits.Model is -2"},
		"total": {func() (inflight.Limits, error) { return inflight.Limits{Total: -2}, nil }, "Limits.Total is -2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged logLines
				good := true
				c := newCache(t, limitcache.Config{
					Default: inflight.Limits{Key: 3},
					Logger:  logged.logger(),
					Fetch: func(_ context.Context, k inflight.Key) (inflight.Limits, error) {
						if good && k == glm {
							return inflight.Limits{Key: 10, Org: inflight.Blocked}, nil
						}
						return bad.fetch()
					},
				})
				serves(t, c, glm, 10)
				require.Equal(t, inflight.Limits{Key: 3}, c.Limits(qwen))
				require.Equal(t, 1, logged.count("level=WARN", "acme/qwen", bad.says, "retry_after=1s"))

				good = false
				time.Sleep(300 * time.Second)
				serves(t, c, glm, 10)
				synctest.Wait()
				require.Equal(t, inflight.Limits{Key: 10, Org: inflight.Blocked}, c.Limits(glm))
				require.Equal(t, 1, logged.count("acme/glm", bad.says))
			})
		})
	}
}
