package inflight_test

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// changing returns a registry with limits that the test may change, as long as it acquires on one goroutine.
func changing(t *testing.T, limits *inflight.Limits) *inflight.Registry {
	t.Helper()
	return registryOf(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits { return *limits }, SweepInterval: -1})
}

// The case late-limit: a limit counts every live slot, also those taken before there was such a limit.
func TestLateLimit(t *testing.T) {
	for scope, keyAt := range map[inflight.Scope]func(i int) inflight.Key{
		inflight.ScopeKey:   func(int) inflight.Key { return acmeGLM },
		inflight.ScopeOrg:   func(i int) inflight.Key { return keyOf("acme", fmt.Sprint("model-", i)) },
		inflight.ScopeModel: func(i int) inflight.Key { return keyOf(fmt.Sprint("org-", i), "glm") },
		inflight.ScopeTotal: func(i int) inflight.Key { return keyOf(fmt.Sprint("org-", i), fmt.Sprint("model-", i)) },
	} {
		t.Run(scope.String(), func(t *testing.T) {
			limits := inflight.Limits{Key: inflight.Unlimited}
			r := changing(t, &limits)
			var slots []*inflight.Slot
			for i := range 5 {
				slots = append(slots, take(t, r, keyAt(i)))
			}
			gone := take(t, r, keyAt(0))
			gone.Release()

			limits = limitsOf(scope, 5)
			e := refused(t, r, keyAt(9))
			require.Equal(t, []any{scope, 5, 5}, []any{e.Scope, e.InUse, e.Limit})
			limits = limitsOf(scope, 6)
			slots = append(slots, take(t, r, keyAt(9)))
			require.Equal(t, 6, refused(t, r, keyAt(8)).InUse)
			slots[0].Release()
			slots[0] = take(t, r, keyAt(8))
			require.Equal(t, 6, refused(t, r, keyAt(8)).InUse)
			releaseAll(slots)
			requireEmpty(t, r)
		})
	}
}

// A late limit counts a slot of several keys once, with its weight.
func TestLateLimitWithAlso(t *testing.T) {
	limits := inflight.Limits{Key: inflight.Unlimited}
	r := changing(t, &limits)
	slots := []*inflight.Slot{
		take(t, r, acmeGLM, inflight.Also(acmeQwen, keyOf("acme", "yi")), inflight.Weight(3)),
		take(t, r, zebraYi, inflight.Also(acmeGLM, zebraGLM)),
		take(t, r, zebraYi),
	}
	limits.Org = 5
	e := refused(t, r, acmeQwen, inflight.Weight(2))
	require.Equal(t, []any{inflight.ScopeOrg, 4}, []any{e.Scope, e.InUse})
	require.Equal(t, 2, refused(t, r, zebraYi, inflight.Weight(4)).InUse)
	limits.Model = 5
	e = refused(t, r, keyOf("new", "glm"), inflight.Weight(2))
	require.Equal(t, []any{inflight.ScopeModel, 4}, []any{e.Scope, e.InUse})
	require.Equal(t, 2, refused(t, r, keyOf("new", "yi"), inflight.Weight(3), inflight.Also(zebraYi)).InUse-3)
	releaseAll(slots)
	requireEmpty(t, r)
}

// The first limit of an org or model may be that of a key of Also.
func TestFirstLimitOfAlso(t *testing.T) {
	for _, scope := range []inflight.Scope{inflight.ScopeOrg, inflight.ScopeModel} {
		r := registryOf(t, inflight.Config{SweepInterval: -1, Limits: func(k inflight.Key) inflight.Limits {
			if k == acmeQwen {
				return limitsOf(scope, 1)
			}
			return inflight.Limits{}
		}})
		slots := []*inflight.Slot{take(t, r, acmeGLM), take(t, r, keyOf("other", "qwen"))}
		e := refused(t, r, zebraYi, inflight.Also(acmeQwen))
		require.Equal(t, []any{acmeQwen, scope, 1}, []any{e.Key, e.Scope, e.InUse})
		releaseAll(slots)
		requireEmpty(t, r)
	}
}

// The case shrink: a lower limit evicts nobody, and admits nobody until use is below it.
func TestShrink(t *testing.T) {
	limits := inflight.Limits{Key: 3}
	r := changing(t, &limits)
	slots := []*inflight.Slot{take(t, r, acmeGLM), take(t, r, acmeGLM), take(t, r, acmeGLM)}
	ctx := slots[0].Context(t.Context())
	limits.Key = 2
	r.LimitsChanged()
	r.Sweep()
	require.NoError(t, ctx.Err())
	require.Equal(t, 3, r.InUse(acmeGLM))
	e := refused(t, r, acmeGLM)
	require.Equal(t, []int{3, 2}, []int{e.InUse, e.Limit})
	slots[0].Release()
	refuses(t, r, acmeGLM)
	slots[1].Release()
	admits(t, r, acmeGLM, 1)
	slots[2].Release()
	requireEmpty(t, r)
}

// The case limit-func-fails: a panic goes on to the caller, and nothing is counted.
func TestLimitFuncFails(t *testing.T) {
	logs := new(records)
	fails := false
	r := registryOf(t, inflight.Config{
		Name: "edge", SweepInterval: -1, Logger: slog.New(logs),
		Limits: func(inflight.Key) inflight.Limits {
			if fails {
				panic("no limits today")
			}
			return inflight.Limits{Key: 2}
		},
	})
	held := take(t, r, acmeGLM)
	fails = true
	require.PanicsWithValue(t, "no limits today", func() { _, _ = r.TryAcquire(acmeGLM) })            //slotvet:ignore it panics
	require.PanicsWithValue(t, "no limits today", func() { _, _ = r.Acquire(t.Context(), acmeQwen) }) //slotvet:ignore it panics
	require.Equal(t, 1, r.Stats().InUse)
	require.Equal(t, 1, r.Stats().Keys)
	require.EqualValues(t, 1, r.Stats().Admitted)
	require.Empty(t, logs.take())

	// Where there is no caller to tell, it is logged.
	require.Equal(t, []inflight.KeyInfo{{Key: acmeGLM, InUse: 1, Holders: 1}}, r.Keys(0))
	require.Equal(t, []record{{slog.LevelError, "inflight: limit function panicked", map[string]any{
		"registry": "edge", "key": "acme/glm", "panic": "no limits today",
	}}}, logs.take())
	require.Equal(t, acmeGLM, r.Sweep().Busiest.Key)
	require.Len(t, logs.take(), 1)

	fails = false
	admits(t, r, acmeGLM, 1)
	held.Release()
	requireEmpty(t, r)
}

// The case zero-unset-unlimited: 0, Unlimited and negative limits are told apart, in each scope.
func TestZeroUnsetUnlimited(t *testing.T) {
	for scope := inflight.ScopeKey; scope <= inflight.ScopeTotal; scope++ {
		for _, limit := range []int{inflight.Blocked, -2, math.MinInt} {
			r := newRegistry(t, limitsOf(scope, limit))
			for _, weight := range []int{0, 1, math.MaxInt} {
				e := refused(t, r, acmeGLM, inflight.Weight(weight))
				require.Equal(t, []any{scope, inflight.Blocked}, []any{e.Scope, e.Limit})
				require.EqualError(t, e, fmt.Sprintf("inflight: %v limit blocks acme/glm", scope))
			}
			require.EqualValues(t, 3, r.Stats().Rejected[scope].TooHeavy)
		}
		for _, limit := range []int{0, inflight.Unlimited} {
			r := newRegistry(t, limitsOf(scope, limit))
			for range 64 {
				take(t, r, acmeGLM) //slotvet:ignore held to the end of the test
			}
			if limit == 0 && scope == inflight.ScopeKey {
				require.Equal(t, inflight.DefaultKeyLimit, refused(t, r, acmeGLM).Limit)
				continue
			}
			take(t, r, acmeGLM, inflight.Weight(math.MaxInt-64)) //slotvet:ignore held to the end of the test
		}
	}
}

// Sums of weights cannot overflow: two slots of weight MaxInt do not fit under one limit, not even under none.
func TestWeightsCannotOverflow(t *testing.T) {
	limits := inflight.Limits{Key: inflight.Unlimited}
	r := changing(t, &limits)
	heavy := inflight.Weight(math.MaxInt)
	s := take(t, r, acmeGLM, heavy, inflight.Also(acmeQwen, zebraGLM))
	for _, k := range []inflight.Key{acmeGLM, acmeQwen, zebraYi} {
		for _, weight := range []int{1, math.MaxInt} {
			e := refused(t, r, k, inflight.Weight(weight))
			require.Equal(t, []int{math.MaxInt, inflight.Unlimited}, []int{e.InUse, e.Limit})
		}
	}
	limits = inflight.Limits{Key: inflight.Blocked, Org: inflight.Blocked, Model: 1, Total: inflight.Blocked}
	refuses(t, r, acmeGLM, heavy)
	refuses(t, r, acmeGLM, inflight.Weight(0))
	require.Equal(t, math.MaxInt, r.InUse(acmeGLM))
	require.Equal(t, math.MaxInt, r.Stats().InUse)
	s.Release()
	requireEmpty(t, r)
	limits = inflight.Limits{Key: inflight.Unlimited}
	take(t, r, acmeGLM, inflight.Weight(math.MaxInt-1)).Release()
}

// A slot of weight 0 is a holder like any other, and takes up nothing. It is refused only where a limit is exceeded.
func TestWeightZero(t *testing.T) {
	limits := inflight.Limits{Key: 2}
	r := changing(t, &limits)
	weightless := take(t, r, acmeGLM, inflight.Weight(0))
	require.Zero(t, weightless.Weight())
	require.Equal(t, []inflight.KeyInfo{{Key: acmeGLM, Limit: 2, Holders: 1}}, r.Keys(0))
	full := take(t, r, acmeGLM, inflight.Weight(2))
	take(t, r, acmeGLM, inflight.Weight(0)).Release()
	require.Equal(t, 2, r.InUse(acmeGLM))

	limits.Key = 1
	refuses(t, r, acmeGLM, inflight.Weight(0))
	full.Release()
	require.Equal(t, 1, r.Stats().Holders)
	weightless.Release()
	requireEmpty(t, r)
}

// A weight above the limit says so, at the first limit that is below it, also where nobody is.
func TestTooHeavy(t *testing.T) {
	for scope := inflight.ScopeKey; scope <= inflight.ScopeTotal; scope++ {
		r := newRegistry(t, limitsOf(scope, 4))
		e := refused(t, r, acmeGLM, inflight.Weight(5))
		require.Equal(t, []any{acmeGLM, scope, 0, 4, 5, 0}, []any{e.Key, e.Scope, e.InUse, e.Limit, e.Weight, e.Waiters})
		require.EqualError(t, e, fmt.Sprintf("inflight: %v limit too small for acme/glm: weight 5 of 4", scope))
		s := take(t, r, acmeGLM, inflight.Weight(3))
		require.Equal(t, 3, refused(t, r, acmeGLM, inflight.Weight(5)).InUse)
		require.EqualValues(t, 2, r.Stats().Rejected[scope].TooHeavy)
		s.Release()
		take(t, r, acmeGLM, inflight.Weight(4)).Release()
		requireEmpty(t, r)
	}
}

// An org or model is limited for the first time by somebody to whom the room is just handed over: what the last holder
// leaves behind goes all the same.
func TestFirstLimitWhileRoomIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{SweepInterval: -1, Limits: func(k inflight.Key) inflight.Limits {
			if k == zebraYi {
				return inflight.Limits{Org: 5, Model: 5, Total: 1}
			}
			return inflight.Limits{Total: 1}
		}})
		leaves := take(t, r, acmeGLM, inflight.Also(acmeQwen))
		go func() {
			if s, err := r.Acquire(t.Context(), zebraGLM, inflight.Also(zebraYi)); err == nil {
				s.Release()
			}
		}()
		synctest.Wait()
		leaves.Release()
		synctest.Wait()
		require.EqualValues(t, 2, r.Stats().Released)
		requireEmpty(t, r)
	})
}
