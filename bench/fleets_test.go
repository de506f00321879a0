package main

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// redisOf starts a Redis. Where there is none the test is skipped; with E2E_SKIPS=fail, as in .ci/run, that is a failure.
func redisOf(t *testing.T) *redis.Client {
	t.Helper()
	client, stop, err := startRedis()
	if errors.Is(err, errNoRedis) && os.Getenv("E2E_SKIPS") != "fail" {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	require.NoError(t, err)
	t.Cleanup(stop)
	return client
}

func TestFleetRows(t *testing.T) {
	client := redisOf(t)
	require.Regexp(t, `^redis-server \d+\.\d+`, redisVersion(client))
	for _, g := range fleetGroups(client) {
		for name, got := range (plan{rounds: 1, sample: time.Millisecond}).measure(g) {
			require.Positive(t, got.nanos, name)
		}
	}
}

// The sorted set refuses what is above its limit, and has what was given back.
func TestSortedSetLimits(t *testing.T) {
	s := newSortedSet(redisOf(t), 1)
	s.cycle(2)
	require.NoError(t, s.client.ZAdd(t.Context(), "sorted", redis.Z{Score: 1e12, Member: "other"}).Err())
	require.Panics(t, func() { s.cycle(1) })
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		pause(0)
		require.Zero(t, time.Since(begin))
		for range 100 {
			begin = time.Now()
			pause(10 * time.Millisecond)
			require.GreaterOrEqual(t, time.Since(begin), 5*time.Millisecond)
			require.Less(t, time.Since(begin), 15*time.Millisecond)
		}
	})
}

func TestFleetGoals(t *testing.T) {
	goals := fleetGoals(map[string]timing{oneProcess: {nanos: 100}, inGrant: {nanos: 120}}, []ratio{
		{name: "a", calls: 1, admission: 100}, {name: "b", calls: 30, admission: 100},
	})
	require.Equal(t, []float64{1.2, 0.01, 0.3}, []float64{goals[0].got, goals[1].got, goals[2].got})
	require.Equal(t, "0.3000 calls for each of 100 admissions", ratio{calls: 30, admission: 100}.line().compared)
}
