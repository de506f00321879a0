package inflight_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestNewNamesTheWrongField(t *testing.T) {
	r, err := inflight.New(inflight.Config{Name: "caf\xe9"})
	require.Nil(t, r)
	require.ErrorContains(t, err, "inflight: Config.Name: ")
}

// Without limits every key has 64 slots, and nothing else bounds it.
func TestDefaultLimits(t *testing.T) {
	for name, cfg := range map[string]inflight.Config{
		"no function": {},
		"all zero":    {Limits: inflight.Fixed(inflight.Limits{})},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.SweepInterval = -1
			r := registryOf(t, cfg)
			for _, k := range []inflight.Key{acmeGLM, acmeQwen, zebraGLM} {
				admits(t, r, k, 64)
				for range 64 {
					take(t, r, k) //slotvet:ignore held to the end of the test
				}
			}
		})
	}
}

// A slot counts for as long as it is held, through any number of sweeps, and to release one admits exactly one.
func TestCapHoldsForEver(t *testing.T) {
	for _, held := range []time.Duration{601 * time.Second, 1000 * time.Second, 24 * time.Hour} {
		t.Run(held.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sweeps atomic.Int32
				r := registryOf(t, inflight.Config{
					Limits: perKey(4), MaxHold: 10 * time.Minute, ReclaimLost: true, OnSweep: func(inflight.SweepReport) { sweeps.Add(1) },
				})
				var slots []*inflight.Slot
				for range 4 {
					slots = append(slots, take(t, r, acmeGLM))
				}
				time.Sleep(held)
				synctest.Wait()
				require.EqualValues(t, held/time.Minute, sweeps.Load())
				require.Equal(t, 4, r.InUse(acmeGLM))
				require.Len(t, r.Slots(0), 4)
				refuses(t, r, acmeGLM)

				slots[1].Release()
				slots[1] = take(t, r, acmeGLM)
				refuses(t, r, acmeGLM)
				time.Sleep(held)
				refuses(t, r, acmeGLM)

				releaseAll(slots)
				requireEmpty(t, r)
				admits(t, r, acmeGLM, 4)
			})
		})
	}
}

// Each scope counts the slots of the keys that it has in common, and no others.
func TestScopes(t *testing.T) {
	same := map[inflight.Scope][]inflight.Key{ // keys that count together
		inflight.ScopeKey:   {acmeGLM},
		inflight.ScopeOrg:   {acmeGLM, acmeQwen},
		inflight.ScopeModel: {acmeGLM, zebraGLM},
		inflight.ScopeTotal: {acmeGLM, acmeQwen, zebraGLM, zebraYi},
	}
	for scope, keys := range same {
		t.Run(scope.String(), func(t *testing.T) {
			r := newRegistry(t, limitsOf(scope, 5))
			var slots []*inflight.Slot
			for i := range 5 {
				slots = append(slots, take(t, r, keys[i%len(keys)]))
			}
			for _, k := range []inflight.Key{acmeGLM, acmeQwen, zebraGLM, zebraYi} {
				if !slices.Contains(keys, k) {
					slots = append(slots, take(t, r, k))
					continue
				}
				e := refused(t, r, k, inflight.Weight(2))
				require.Equal(t, []any{k, scope, 5, 5, 2, 0}, []any{e.Key, e.Scope, e.InUse, e.Limit, e.Weight, e.Waiters})
				require.EqualError(t, e, fmt.Sprintf("inflight: %v limit reached for %v: 5 of 5 in use", scope, k))
			}
			slots[0].Release()
			admits(t, r, keys[len(keys)-1], 1)
			releaseAll(slots)
			requireEmpty(t, r)
		})
	}
}

// limitsOf are limits of one scope only.
func limitsOf(s inflight.Scope, n int) inflight.Limits {
	l := inflight.Limits{Key: inflight.Unlimited}
	switch s {
	case inflight.ScopeKey:
		l.Key = n
	case inflight.ScopeOrg:
		l.Org = n
	case inflight.ScopeModel:
		l.Model = n
	case inflight.ScopeTotal:
		l.Total = n
	}
	return l
}

// Of several limits without room the narrowest refuses, those of the key itself before those of Also.
func TestFirstLimitRefuses(t *testing.T) {
	limits := inflight.Limits{Key: 1, Org: 1, Model: 1, Total: 1}
	r := registryOf(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits { return limits }, SweepInterval: -1})
	defer take(t, r, acmeGLM).Release()
	for _, room := range []struct {
		field *int
		scope inflight.Scope
	}{
		{&limits.Key, inflight.ScopeKey},
		{&limits.Org, inflight.ScopeOrg},
		{&limits.Model, inflight.ScopeModel},
		{&limits.Total, inflight.ScopeTotal},
	} {
		e := refused(t, r, acmeGLM)
		require.Equal(t, room.scope, e.Scope)
		*room.field = 2
	}
	limits = inflight.Limits{Key: 1}
	require.Equal(t, acmeGLM, refused(t, r, acmeQwen, inflight.Also(zebraGLM, acmeGLM)).Key)
	require.Equal(t, acmeGLM, refused(t, r, acmeGLM, inflight.Also(zebraGLM)).Key)
}

// The case refusal-pure: whoever is refused leaves nothing behind, neither where there was room nor where there was none.
func TestRefusalPure(t *testing.T) {
	limits := func(k inflight.Key) inflight.Limits {
		switch k.Model {
		case "blocked":
			return inflight.Limits{Key: inflight.Blocked}
		case "panics":
			panic("limits")
		}
		return inflight.Limits{Key: 1, Org: 3, Model: 3, Total: 3}
	}
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{Limits: limits, SweepInterval: -1, MaxWaiters: -1})
		defer take(t, r, acmeGLM).Release()
		before, gates, keys := r.Stats(), r.Gates(), r.Keys(0)
		for name, attempt := range map[string]struct {
			key     inflight.Key
			options []inflight.Option
		}{
			"full":           {acmeGLM, nil},
			"full, new also": {acmeGLM, []inflight.Option{inflight.Also(zebraYi, keyOf("new", "new"))}},
			"new, full also": {zebraYi, []inflight.Option{inflight.Also(acmeQwen, acmeGLM)}},
			"total":          {zebraYi, []inflight.Option{inflight.Weight(3), inflight.Also(acmeQwen)}},
			"too heavy":      {zebraYi, []inflight.Option{inflight.Weight(4)}},
			"blocked":        {keyOf("acme", "blocked"), nil},
			"blocked also":   {zebraYi, []inflight.Option{inflight.Also(keyOf("new", "blocked"))}},
			"negative":       {zebraYi, []inflight.Option{inflight.Weight(-1)}},
			"panics":         {keyOf("acme", "panics"), nil},
			"panics later":   {zebraYi, []inflight.Option{inflight.Also(keyOf("acme", "panics"))}},
		} {
			for _, acquire := range []func() (*inflight.Slot, error){
				func() (*inflight.Slot, error) { return r.TryAcquire(attempt.key, attempt.options...) },
				func() (*inflight.Slot, error) { return r.Acquire(t.Context(), attempt.key, attempt.options...) },
			} {
				slot, err := recovered(acquire)
				require.Nil(t, slot, name)
				require.Error(t, err, name)
			}
			after := r.Stats()
			after.Rejected = before.Rejected
			require.Equal(t, before, after, name)
			require.Equal(t, gates, r.Gates(), name)
			require.Equal(t, keys, r.Keys(0), name)
		}
	})
}

// recovered makes an error of a panic.
func recovered(f func() (*inflight.Slot, error)) (s *inflight.Slot, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

func TestNegativeWeightIsAnError(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	for _, acquire := range []func() (*inflight.Slot, error){
		func() (*inflight.Slot, error) { return r.TryAcquire(acmeGLM, inflight.Weight(-3)) },
		func() (*inflight.Slot, error) { return r.Acquire(t.Context(), acmeGLM, inflight.Weight(-3)) },
	} {
		_, err := acquire()
		require.EqualError(t, err, "inflight: Weight(-3) of acme/glm: must not be negative")
		require.NotErrorIs(t, err, inflight.ErrLimit)
	}
}

// Options that say nothing change nothing, and TryAcquire does not wait whatever MaxWait says.
func TestOptions(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 1})
	s := take(t, r, acmeGLM, inflight.Option{}, inflight.Also(), inflight.MaxWait(time.Hour), inflight.Label("req-1"))
	require.Equal(t, 1, s.Weight())
	require.Equal(t, "req-1", s.Label())
	soon(t, func() { _, _ = r.TryAcquire(acmeGLM, inflight.MaxWait(time.Hour)) }) //slotvet:ignore it is refused
	refuses(t, r, acmeGLM, inflight.MaxWait(time.Hour))
	s.Release()
	requireEmpty(t, r)
}

// A slot with Also counts at all its keys or at none, and frees them together.
func TestAlso(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 2})
	s := take(t, r, acmeGLM, inflight.Also(zebraYi), inflight.Weight(2))
	require.Equal(t, []int{2, 2}, []int{r.InUse(acmeGLM), r.InUse(zebraYi)})
	require.Equal(t, 2, r.Stats().InUse)
	refuses(t, r, zebraYi)
	require.Equal(t, zebraYi, refused(t, r, zebraGLM, inflight.Also(acmeQwen, zebraYi)).Key)
	require.Equal(t, []int{0, 0}, []int{r.InUse(zebraGLM), r.InUse(acmeQwen)})
	s.Release()
	requireEmpty(t, r)
	admits(t, r, zebraYi, 2)
}

// Where the keys of a slot meet, it counts once: in a key named twice, in a common org or model, and in the total.
func TestAlsoCountsEachPlaceOnce(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 1, Org: 1, Model: 1, Total: 1})
	for _, also := range [][]inflight.Key{
		{acmeGLM},
		{acmeGLM, acmeGLM, acmeGLM},
		{acmeQwen, acmeQwen},
		{acmeQwen, zebraGLM, zebraYi},
		{zebraYi, zebraGLM, acmeQwen, acmeGLM},
	} {
		s := take(t, r, acmeGLM, inflight.Also(also...))
		for _, k := range append(also, acmeGLM) {
			require.Equal(t, 1, r.InUse(k))
		}
		require.Equal(t, 1, r.Stats().InUse)
		s.Release()
		requireEmpty(t, r)
	}
}

// Of an Option that is used by many, nothing is kept that another use could change.
func TestOptionsAreValues(t *testing.T) {
	r := newRegistry(t, inflight.Limits{})
	keys := []inflight.Key{acmeGLM, acmeQwen, acmeGLM, zebraGLM}
	also := inflight.Also(keys...)
	a, b := take(t, r, zebraGLM, also), take(t, r, acmeQwen, also)
	require.Equal(t, []inflight.Key{acmeGLM, acmeQwen, acmeGLM, zebraGLM}, keys)
	require.Equal(t, []inflight.Key{acmeGLM, acmeQwen}, r.Slots(0)[0].Also)
	require.Equal(t, []inflight.Key{acmeGLM, zebraGLM}, r.Slots(0)[1].Also)
	keys[0] = zebraYi
	b.Release()
	require.Equal(t, 1, r.InUse(acmeGLM))
	a.Release()
	requireEmpty(t, r)
}

// A limit is full to errors.Is whatever it was that did not fit; only the queue makes it ErrTooManyWaiters.
func TestLimitErrorIs(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 1})
	defer take(t, r, acmeGLM).Release()
	for _, weight := range []int{1, 2} {
		_, err := r.TryAcquire(acmeGLM, inflight.Weight(weight))
		require.ErrorIs(t, fmt.Errorf("outer: %w", err), inflight.ErrLimit)
		require.NotErrorIs(t, err, inflight.ErrTooManyWaiters)
		require.NotErrorIs(t, err, inflight.ErrClosed)
		require.NotErrorIs(t, err, errors.New("inflight: limit reached"))
	}
}
