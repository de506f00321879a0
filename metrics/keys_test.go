package metrics_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/metrics"
)

// keySeries scrapes what is shown of a key.
func keySeries(t *testing.T, c *metrics.Collector, label string) map[string]float64 {
	t.Helper()
	got := make(map[string]float64)
	all := scrape(t, c)
	for _, name := range []string{"slots", "slots_weight", "waiters", "limit", "granted"} {
		if value, ok := all["key_"+name+`{key="`+label+`"}`]; ok {
			got[name] = value
		}
	}
	return got
}

func TestListedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := inflight.NewLimitTable(inflight.Limits{Key: 8})
		reg := newRegistry(t, inflight.Config{Limits: limits.Limits})
		called := inflight.Key{Org: "other"}
		c := metrics.NewCollector(reg, metrics.WithKeys(glm, qwen), metrics.WithKeys(called, glm))

		hold(t, reg, glm, inflight.Weight(3), inflight.Also(qwen))
		hold(t, reg, glm, inflight.Weight(5))
		hold(t, reg, called, inflight.Weight(7))
		for _, org := range []string{"b", "c"} {
			hold(t, reg, inflight.Key{Org: org}, inflight.Weight(4))
			hold(t, reg, inflight.Key{Org: org}, inflight.Weight(2))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		for _, k := range []inflight.Key{glm, {Org: "b"}, {Org: "b"}} {
			waiting.Go(func() { _, _ = reg.Acquire(ctx, k, inflight.Weight(6)) }) //slotvet:ignore cancelled while it waits
		}
		synctest.Wait()

		require.Equal(t, map[string]float64{"slots": 2, "slots_weight": 8, "waiters": 1, "limit": 8}, keySeries(t, c, `acme/glm`))
		require.Equal(t, map[string]float64{"slots": 1, "slots_weight": 3, "waiters": 0, "limit": 8}, keySeries(t, c, `acme/qwen`))
		require.Equal(t, map[string]float64{"slots": 1, "slots_weight": 7, "waiters": 0, "limit": 8}, keySeries(t, c, `other/\"\"`))
		require.Equal(t, map[string]float64{"slots": 4, "slots_weight": 12, "waiters": 2}, keySeries(t, c, "other"))
		require.Zero(t, scrape(t, metrics.NewCollector(reg))[`key_slots{key="other"}`])
		require.Equal(t, testutil.CollectAndCount(metrics.NewCollector(reg))+3*4+3, testutil.CollectAndCount(c))

		for limit, drawn := range map[int]float64{inflight.Unlimited: math.Inf(1), inflight.Blocked: 0} {
			require.NoError(t, limits.Set(called, inflight.Limits{Key: limit}))
			require.Equal(t, drawn, keySeries(t, c, `other/\"\"`)["limit"])
		}
	})
}

// A key that is idle is there, so that its graph has no holes; its limit is not known then.
func TestListedKeyIsIdle(t *testing.T) {
	reg := newRegistry(t, inflight.Config{})
	c := metrics.NewCollector(reg, metrics.WithKeys(glm))
	for _, label := range []string{"acme/glm", "other"} {
		require.Equal(t, map[string]float64{"slots": 0, "slots_weight": 0, "waiters": 0}, keySeries(t, c, label))
	}
}

// What is granted is shown of limits that are leased; of all others none is.
func TestListedKeyIsLeased(t *testing.T) {
	limit := 64
	reg := newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits { return inflight.Limits{Key: limit} }})
	c := metrics.NewCollector(reg, metrics.WithKeys(glm))
	hold(t, reg, glm, inflight.Weight(3))
	require.NotContains(t, keySeries(t, c, "acme/glm"), "granted")
	leases, err := reg.Lease(1, time.Second)
	require.NoError(t, err)
	held, _ := leases.Held(0, 100, true)
	for i := range held {
		leases.Answer(held[i:i+1], []inflight.Grant{{Granted: 5, Keep: -1}})
	}
	got := keySeries(t, c, "acme/glm")
	require.Equal(t, map[string]float64{"slots": 1, "slots_weight": 3, "waiters": 0, "limit": 64, "granted": 5}, got)
	require.NotContains(t, keySeries(t, c, "other"), "granted")
	limit = inflight.Unlimited
	require.NotContains(t, keySeries(t, c, "acme/glm"), "granted", "of no limit nothing has to be")
}

func TestKeysAtLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 2})})
		c := metrics.NewCollector(reg)
		const interval = 15 * time.Second
		var at []float64
		scrapes := func(n int, full bool) {
			for range n {
				time.Sleep(interval)
				got := scrape(t, c)
				require.Equal(t, full, got["keys_at_limit"] == 1)
				at = append(at, got["key_at_limit_seconds"])
			}
		}
		hold(t, reg, glm)
		scrapes(1, false)
		slot := hold(t, reg, glm)
		scrapes(3, true)
		slot.Release()
		scrapes(6, false) // 90 s, for which a key may be below
		slot = hold(t, reg, glm)
		scrapes(1, true)
		slot.Release()
		scrapes(7, false)
		hold(t, reg, glm)
		scrapes(2, true)
		require.Equal(t, []float64{0, 0, 15, 30, 30, 30, 30, 30, 30, 30, 135, 135, 135, 135, 135, 135, 135, 0, 0, 15}, at)
	})
}

// What was between two scrapes that are far apart nobody knows.
func TestKeysAtLimitAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		c := metrics.NewCollector(reg)
		hold(t, reg, glm)
		for _, gap := range []struct{ length, seconds time.Duration }{
			{0, 0}, {5 * time.Minute, 5 * time.Minute}, {5*time.Minute + 1, 0}, {time.Hour, 0}, {time.Minute, time.Minute},
		} {
			time.Sleep(gap.length)
			require.Equal(t, gap.seconds.Seconds(), scrape(t, c)["key_at_limit_seconds"], gap.length)
		}
	})
}

// A key whose slots are heavy is at its limit when no other such slot has room.
func TestKeysAtLimitOfHeavySlots(t *testing.T) {
	reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 10})})
	c := metrics.NewCollector(reg)
	for held, atLimit := range []float64{0, 0, 1} {
		hold(t, reg, glm, inflight.Weight(3))
		require.Equal(t, atLimit, scrape(t, c)["keys_at_limit"], held+1)
	}
	light := inflight.Key{Org: "acme", Model: "light"}
	hold(t, reg, light, inflight.Weight(0))
	require.Equal(t, 1.0, scrape(t, c)["keys_at_limit"], "what weighs nothing has room")
}

// It is the same key that must be at its limit, not one after the other.
func TestKeysAtLimitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		c := metrics.NewCollector(reg)
		for i := range 100 {
			slot := hold(t, reg, inflight.Key{Org: string(rune('a' + i%10))})
			time.Sleep(15 * time.Second)
			got := scrape(t, c)
			require.Equal(t, []float64{1, 0}, []float64{got["keys_at_limit"], got["key_at_limit_seconds"]})
			slot.Release()
		}
	})
}

// Limits that are reached in odd ways: never, without room for anything, and unknown.
func TestKeysAtOddLimits(t *testing.T) {
	limit := 4
	reg := newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits {
		if limit == 0 {
			panic("no limit today")
		}
		return inflight.Limits{Key: limit}
	}})
	c := metrics.NewCollector(reg, metrics.WithKeys(glm))
	hold(t, reg, glm)
	hold(t, reg, glm)
	for _, test := range []struct {
		limit   int
		atLimit float64
		drawn   map[string]float64
	}{
		{3, 0, map[string]float64{"limit": 3}},
		{2, 1, map[string]float64{"limit": 2}},
		{1, 1, map[string]float64{"limit": 1}}, // lowered below what is in use
		{inflight.Blocked, 1, map[string]float64{"limit": 0}},
		{inflight.Unlimited, 0, map[string]float64{"limit": math.Inf(1)}},
		{0, 0, map[string]float64{}},
	} {
		limit = test.limit
		require.Equal(t, test.atLimit, scrape(t, c)["keys_at_limit"], test.limit)
		got := keySeries(t, c, "acme/glm")
		for _, name := range []string{"slots", "slots_weight", "waiters"} {
			delete(got, name)
		}
		require.Equal(t, test.drawn, got)
	}
}
