package limitcache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	fetch := new(database).fetch
	for field, cfg := range map[string]limitcache.Config{
		"Fetch":       {},
		"Default":     {Fetch: fetch, Default: inflight.Limits{Total: -2}},
		"TTL":         {Fetch: fetch, TTL: -1},
		"NegativeTTL": {Fetch: fetch, NegativeTTL: -1},
		"Timeout":     {Fetch: fetch, Timeout: -1},
		"RetryMin":    {Fetch: fetch, RetryMin: -1},
		"RetryMax":    {Fetch: fetch, RetryMin: 2, RetryMax: 1},
		"MaxKeys":     {Fetch: fetch, MaxKeys: -1},
	} {
		t.Run(field, func(t *testing.T) {
			c, err := limitcache.New(cfg)
			require.ErrorContains(t, err, "limitcache: Config."+field)
			require.Nil(t, c)
		})
	}
}

func TestRetryMaxFollowsRetryMin(t *testing.T) {
	newCache(t, limitcache.Config{Fetch: new(database).fetch, RetryMin: time.Minute})
}

// Close cancels a fetch and waits for it. Who waits for its limits gets the default ones at once, and nothing is logged.
func TestCloseDuringAFetch(t *testing.T) {
	for name, first := range map[string]bool{"first": true, "refresh": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged logLines
				var running bool
				hang := first
				c := newCache(t, limitcache.Config{
					Default: inflight.Limits{Key: 3},
					Logger:  logged.logger(),
					Fetch: func(ctx context.Context, _ inflight.Key) (inflight.Limits, error) {
						if hang {
							running = true
							<-ctx.Done()
							running = false
						}
						return inflight.Limits{Key: 3}, ctx.Err()
					},
				})
				waiting := make(chan int, 1)
				if !first {
					c.Limits(glm)
					time.Sleep(300 * time.Second)
					hang = true
				}
				go func() { waiting <- c.Limits(glm).Key }()
				synctest.Wait()
				require.True(t, running)

				require.Zero(t, took(func() { require.NoError(t, c.Close()) }))
				require.False(t, running)
				require.Equal(t, 3, <-waiting)
				synctest.Wait()
				require.Zero(t, logged.count())
			})
		})
	}
}

// Nothing of the user's runs any more when Close returns, not even OnChange.
func TestCloseWaitsForOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, OnChange: func() {
			time.Sleep(time.Second)
			returned = true
		}})
		serves(t, c, glm, 10)
		db.set(20, nil, 0)
		time.Sleep(300 * time.Second)
		serves(t, c, glm, 10)
		synctest.Wait()
		require.NoError(t, c.Close())
		require.True(t, returned)
	})
}

// A closed cache still answers, from what it has.
func TestLimitsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes int
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{
			Fetch: db.fetch, Default: inflight.Limits{Key: 3}, OnChange: func() { changes++ },
		})
		serves(t, c, glm, 10)
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		db.set(20, nil, 0)
		serves(t, c, qwen, 3)
		for range 3 {
			time.Sleep(300 * time.Second)
			serves(t, c, glm, 10)
			synctest.Wait()
		}
		require.Equal(t, 1, db.fetches())
		require.Zero(t, changes)
	})
}
