package limitcache_test

import (
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// Limits older than their TTL are served while they are refreshed, by one fetch.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch})
		serves(t, c, glm, 10)
		db.set(20, nil, time.Second)

		time.Sleep(300*time.Second - 1)
		serves(t, c, glm, 10)
		synctest.Wait()
		require.Equal(t, 1, db.fetches())

		time.Sleep(time.Nanosecond)
		for range 100 {
			serves(t, c, glm, 10)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		serves(t, c, glm, 20)
		require.Equal(t, 2, db.fetches())

		time.Sleep(300 * time.Second)
		serves(t, c, glm, 20)
		synctest.Wait()
		require.Equal(t, 3, db.fetches(), "and so on")
	})
}

// While refreshes fail, the limits stay, and the database is asked less and less often.
func TestFailingRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, Default: inflight.Limits{Key: 3}})
		serves(t, c, glm, 10)
		db.set(0, errDown, 0)
		time.Sleep(300 * time.Second)

		var at []int // seconds of the fetches
		for second := range 100 {
			before := db.fetches()
			serves(t, c, glm, 10)
			synctest.Wait()
			if db.fetches() > before {
				at = append(at, second)
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, []int{0, 1, 3, 7, 15, 31, 61, 91}, at)

		db.set(20, nil, 0)
		time.Sleep(30 * time.Second)
		serves(t, c, glm, 10)
		synctest.Wait()
		serves(t, c, glm, 20)

		db.set(0, errDown, 0)
		time.Sleep(300 * time.Second)
		serves(t, c, glm, 20)
		synctest.Wait()
		fetches := db.fetches()
		time.Sleep(time.Second)
		serves(t, c, glm, 20)
		synctest.Wait()
		require.Equal(t, fetches+1, db.fetches(), "a success starts the back-off anew")
	})
}

// A refresh that hangs takes nothing but its own time.
func TestRefreshTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged logLines
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, Logger: logged.logger()})
		serves(t, c, glm, 10)
		db.set(0, nil, time.Hour)
		time.Sleep(300 * time.Second)
		serves(t, c, glm, 10)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, logged.count("context deadline exceeded"))
		serves(t, c, glm, 10)
	})
}

func TestFailureIsLoggedOncePerKeyAndTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged logLines
		db := &database{err: errDown}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, TTL: time.Minute, Logger: logged.logger()})
		for minute := range 3 {
			for range 60 {
				c.Limits(glm)
				c.Limits(qwen)
				synctest.Wait()
				time.Sleep(time.Second)
			}
			require.Equal(t, minute+1, logged.count("acme/glm"))
			require.Equal(t, minute+1, logged.count("acme/qwen"))
		}
		require.Greater(t, db.fetches(), 6*2)
	})
}

// A key that fails every other time is not logged each time either.
func TestFailureIsLoggedOncePerTTLAcrossAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged logLines
		db := new(database)
		c := newCache(t, limitcache.Config{Fetch: db.fetch, NegativeTTL: time.Second, Logger: logged.logger()})
		for range 10 {
			for _, err := range []error{errDown, limitcache.ErrNotFound} {
				db.set(0, err, 0)
				c.Limits(glm)
				synctest.Wait()
				time.Sleep(time.Second)
			}
		}
		require.Equal(t, 20, db.fetches())
		require.Equal(t, 1, logged.count())
	})
}

func TestLogsToTheDefaultLogger(t *testing.T) {
	var logged logLines
	before := slog.Default()
	slog.SetDefault(logged.logger())
	defer slog.SetDefault(before)
	c, err := limitcache.New(limitcache.Config{Fetch: (&database{err: errDown}).fetch})
	require.NoError(t, err)
	c.Limits(glm)
	require.NoError(t, c.Close())
	require.Equal(t, 1, logged.count("acme/glm"))
}

// However many keys are looked up, MaxKeys are kept, those in use among them.
func TestMaxKeys(t *testing.T) {
	const keys, maxKeys = 2000, 100
	synctest.Test(t, func(t *testing.T) {
		db := &database{limit: 10}
		c := newCache(t, limitcache.Config{Fetch: db.fetch, MaxKeys: maxKeys})
		lookUp := func(i int) { c.Limits(inflight.Key{Org: strconv.Itoa(i), Model: "glm"}) }
		inUse := 0
		for i := range keys {
			lookUp(i)
			before := db.fetches()
			c.Limits(glm)
			inUse += db.fetches() - before
			synctest.Wait()
		}
		require.Equal(t, 1, inUse, "fetches of the key that is in use all the time")

		before := db.fetches()
		for i := range keys {
			lookUp(keys - 1 - i) // the last first, or looking would evict what it looks for
			synctest.Wait()
		}
		require.GreaterOrEqual(t, db.fetches()-before, keys-maxKeys)
		require.Less(t, db.fetches()-before, keys, "some were kept")
	})
}
