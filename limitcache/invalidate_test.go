package limitcache_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// invalidations are the ways to invalidate glm, with the keys that go.
var invalidations = map[string]struct {
	do   func(*limitcache.Cache)
	keys []inflight.Key
}{
	"key": {func(c *limitcache.Cache) { c.Invalidate(glm) }, []inflight.Key{glm}},
	"org": {func(c *limitcache.Cache) { c.InvalidateOrg("acme") }, []inflight.Key{glm, qwen}},
	"all": {(*limitcache.Cache).InvalidateAll, []inflight.Key{glm, qwen, beta}},
}

func TestInvalidateTakesEffectAtTheNextLookup(t *testing.T) {
	for name, invalidation := range invalidations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &database{limit: 10}
				c := newCache(t, limitcache.Config{Fetch: db.fetch})
				for _, k := range []inflight.Key{glm, qwen, beta} {
					serves(t, c, k, 10)
				}
				db.set(20, nil, 0)
				invalidation.do(c)
				for _, k := range []inflight.Key{glm, qwen, beta} {
					c.Limits(k)
				}
				require.ElementsMatch(t, append([]inflight.Key{glm, qwen, beta}, invalidation.keys...), db.fetched)
				serves(t, c, glm, 20)
			})
		})
	}
}

// As long as the fetch that follows an invalidation fails, or hangs, the limits stay as they were last known: the default
// ones may be far higher. The next that succeeds counts.
func TestInvalidateThenFail(t *testing.T) {
	for name, invalidation := range invalidations {
		for how, hang := range map[string]time.Duration{"fails": 0, "hangs": time.Hour} {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db := &database{limit: 10}
					c := newCache(t, limitcache.Config{Fetch: db.fetch, Default: inflight.Limits{Key: 30}})
					serves(t, c, glm, 10)
					db.set(0, errDown, hang)
					for range 3 {
						invalidation.do(c)
						require.Equal(t, 10, c.Limits(glm).Key)
					}
					db.set(20, nil, 0)
					time.Sleep(time.Second)
					c.Limits(glm) // starts the retry
					synctest.Wait()
					serves(t, c, glm, 20)

					db.set(0, limitcache.ErrNotFound, 0)
					invalidation.do(c)
					serves(t, c, glm, 30) // no limits are set: that is no failure
					db.set(0, errDown, 0)
					invalidation.do(c)
					serves(t, c, glm, 30)
				})
			})
		}
	}
}

// So do those of a key that had to make room for others.
func TestEvictedThenFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, MaxKeys: 1, Default: inflight.Limits{Key: 30}})
		serves(t, c, glm, 10)
		serves(t, c, qwen, 10)
		synctest.Wait()
		db.set(0, errDown, 0)
		require.Equal(t, 10, c.Limits(glm).Key)
	})
}

// A first fetch that has read its limits before the invalidation does not bring them into the cache after it.
func TestInvalidateDuringTheFirstFetch(t *testing.T) {
	for name, invalidation := range invalidations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &database{limit: 10, delay: time.Second}
				c := newCache(t, limitcache.Config{Fetch: db.fetch})
				waiting := make(chan int, 2)
				for range cap(waiting) {
					go func() { waiting <- c.Limits(glm).Key }()
				}
				time.Sleep(time.Second / 2)
				db.set(20, nil, 0)
				invalidation.do(c)
				serves(t, c, glm, 20)
				for range cap(waiting) {
					require.Equal(t, 20, <-waiting)
				}
				serves(t, c, glm, 20)
				require.Equal(t, 2, db.fetches())
			})
		})
	}
}

func TestInvalidateDuringARefresh(t *testing.T) {
	for name, invalidation := range invalidations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &database{limit: 10}
				c := newCache(t, limitcache.Config{Fetch: db.fetch})
				serves(t, c, glm, 10)
				time.Sleep(300 * time.Second)
				db.set(15, nil, time.Second)
				serves(t, c, glm, 10)
				time.Sleep(time.Second / 2)
				db.set(20, nil, 0)
				invalidation.do(c)
				serves(t, c, glm, 20)
				time.Sleep(time.Second)
				synctest.Wait()
				serves(t, c, glm, 20)
			})
		})
	}
}

// Invalidations that keep discarding what is fetched do not keep a look-up waiting, and leave no trace in the cache.
func TestInvalidateAgainAndAgain(t *testing.T) {
	for name, invalidation := range invalidations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &database{limit: 10, delay: 1500 * time.Millisecond}
				c := newCache(t, limitcache.Config{Fetch: db.fetch, Default: inflight.Limits{Key: 3}})
				for _, want := range []struct{ lastKnown, fetched int }{{3, 10}, {10, 20}} {
					go func() {
						time.Sleep(time.Second)
						invalidation.do(c)
					}()
					require.Equal(t, 2*time.Second, took(func() { require.Equal(t, want.lastKnown, c.Limits(glm).Key) }))
					require.Equal(t, 1500*time.Millisecond, took(func() { require.Equal(t, want.fetched, c.Limits(glm).Key) }))
					db.set(20, nil, 1500*time.Millisecond)
					invalidation.do(c)
				}
			})
		})
	}
}

// Each look-up sees what was in force when it began, or something later, at any timing: with first fetches, refreshes,
// failures and evictions in between.
func TestLookupsNeverSeeWhatWasInvalidatedBefore(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var stored, inForce [4]atomic.Int64 // by key: what the database has, and what every look-up must see by now
	keys := make([]inflight.Key, len(stored))
	for i := range keys {
		keys[i] = inflight.Key{Org: "acme", Model: strconv.Itoa(i)}
	}
	c := newCache(t, limitcache.Config{
		TTL:     10 * time.Microsecond,
		MaxKeys: 3,
		Fetch: func(_ context.Context, k inflight.Key) (inflight.Limits, error) {
			i, _ := strconv.Atoi(k.Model)
			return inflight.Limits{Key: int(stored[i].Load())}, nil
		},
	})
	rounds := 20_000
	if testing.Short() {
		rounds = 2_000
	}
	var all sync.WaitGroup
	var stale atomic.Int64
	for i := range keys {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range rounds / 10 {
				n := stored[i].Add(1)
				switch rng.IntN(3) {
				case 0:
					c.Invalidate(keys[i])
				case 1:
					c.InvalidateOrg("acme")
				default:
					c.InvalidateAll()
				}
				inForce[i].Store(n)
			}
		})
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			for range rounds {
				i := rng.IntN(len(keys))
				atLeast := inForce[i].Load()
				if int64(c.Limits(keys[i]).Key) < atLeast {
					stale.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, stale.Load())
}
