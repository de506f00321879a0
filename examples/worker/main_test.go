package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In fake time the run is the same each time.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), "", 1, &out))
		require.Equal(t, strings.TrimLeft(`
job  customer  GiB  held back  waited  outcome
1    acme      3    0s         0s      ran, with slot 1
2    zebra     2    0s         350ms   ran, with slot 2
3    nadir     1    0s         300ms   ran, with slot 3
4    acme      3    250ms      500ms   gave up
5    acme      1    150ms      300ms   ran, with slot 4
6    nadir     4    250ms      0s      refused: above the key limit of 3
7    zebra     1    0s         0s      ran, with slot 5
8    nadir     3    0s         150ms   the shift was over

5 of 8 jobs ran, with at most 4 of 4 GiB in use
`, "\n"), out.String())
	})
}

// What another process uses of the GPU is not there for this one.
func TestRunShares(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	reg, err := inflight.New(inflight.Config{Limits: inflight.Fixed(limits), SweepInterval: -1})
	require.NoError(t, err)
	other, err := fleet.New(t.Context(), client, reg, fleet.Config{TTL: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(t.Context())) }()
	hold := func(customer string, gib int) *inflight.Slot {
		key := inflight.Key{Org: customer, Model: "gpu"}
		slot, err := other.Acquire(t.Context(), key, inflight.Weight(gib), inflight.MaxWait(time.Minute)) // a new Redis has nothing at first
		require.NoError(t, err)
		return slot
	}
	defer hold("acme", 3).Release()
	defer hold("zebra", 1).Release()

	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "redis://"+server.Addr(), 1, &out))
	require.Contains(t, out.String(), "0 of 8 jobs ran")
}
