package inflight_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Several keys are taken all together or not at all, and a refusal says which of them had no room.
func TestAlsoIsAllOrNothing(t *testing.T) {
	inQueueTest(t, perKey(1), func(q *queueTest) {
		t := q.t
		s := q.take(acmeGLM, inflight.Also(acmeQwen, zebraYi))
		for _, k := range []inflight.Key{acmeGLM, acmeQwen, zebraYi} {
			require.Equal(t, 1, q.InUse(k))
			e := q.refused(zebraGLM, inflight.Also(k))
			require.Equal(t, []any{k, inflight.ScopeKey, 1, 1, 1, 0}, fields(e))
			require.Zero(t, q.InUse(zebraGLM), "nothing is taken")
		}
		require.Equal(t, 1, q.Stats().InUse)
		require.Equal(t, 1, q.Stats().Holders)
		require.Equal(t, 3, q.Stats().Keys)
		require.Equal(t, []inflight.Key{acmeQwen, zebraYi}, q.Slots(0)[0].Also)
		s.Release()
		q.empty()
	})
}

// What the keys have in common counts once: an org, a model, the total, and a key that is named twice.
func TestAlsoCountsWhatIsSharedOnce(t *testing.T) {
	tests := map[inflight.Scope]struct {
		limits inflight.Limits
		also   []inflight.Key // of acmeGLM
		probe  inflight.Key   // bound by the same limit
	}{
		inflight.ScopeKey:   {inflight.Limits{Key: 3}, []inflight.Key{acmeGLM, acmeGLM}, acmeGLM},
		inflight.ScopeOrg:   {inflight.Limits{Org: 3}, []inflight.Key{acmeQwen}, inflight.Key{Org: "acme", Model: "yi"}},
		inflight.ScopeModel: {inflight.Limits{Model: 3}, []inflight.Key{zebraGLM}, inflight.Key{Org: "nadir", Model: "glm"}},
		inflight.ScopeTotal: {inflight.Limits{Total: 3}, []inflight.Key{zebraYi, acmeQwen}, inflight.Key{}},
	}
	for scope, x := range tests {
		t.Run(scope.String(), func(t *testing.T) {
			inQueueTest(t, inflight.Fixed(x.limits), func(q *queueTest) {
				t := q.t
				s := q.take(acmeGLM, inflight.Weight(3), inflight.Also(x.also...), inflight.Also(x.also...))
				require.Equal(t, []any{x.probe, scope, 3, 3, 1, 0}, fields(q.refused(x.probe)))
				a := q.queue(x.probe, inflight.Also(acmeGLM), inflight.Weight(3))
				s.Release()
				require.Equal(t, []any{acmeGLM, scope, 3, 3, 1, 0}, fields(q.refused(acmeGLM)))
				a.granted().Release()
				q.empty()
			})
		})
	}
}

// A waiter waits at the keys one after the other, and the Waiters of an error are those queued at the limit it names.
func TestWaitingOnAlsoKeys(t *testing.T) {
	limits := func(k inflight.Key) inflight.Limits {
		if k.Org == "zebra" {
			return inflight.Limits{Key: 1, Org: 1}
		}
		return inflight.Limits{Key: 1, Total: 4}
	}
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		held := map[inflight.Key]*inflight.Slot{}
		for _, k := range []inflight.Key{acmeGLM, acmeQwen, zebraYi} {
			held[k] = q.take(k)
		}
		a := q.queue(acmeGLM, inflight.Also(acmeQwen, zebraGLM))
		require.Equal(t, []inflight.Scope{inflight.ScopeKey}, q.blockedAt())
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 1, 1, 1}, fields(q.refused(acmeGLM)))
		require.Equal(t, []any{acmeQwen, inflight.ScopeKey, 1, 1, 1, 0}, fields(q.refused(acmeQwen)))

		held[acmeQwen].Release() // not where it waits
		require.Equal(t, []any{acmeGLM, inflight.ScopeKey, 1, 1, 1, 1}, fields(q.refused(acmeGLM)))
		held[acmeQwen] = q.take(acmeQwen)

		held[acmeGLM].Release()
		require.Equal(t, []any{acmeQwen, inflight.ScopeKey, 1, 1, 1, 1}, fields(q.refused(acmeQwen)))
		held[acmeQwen].Release()
		require.Equal(t, []inflight.Scope{inflight.ScopeOrg}, q.blockedAt())
		require.Equal(t, []any{zebraGLM, inflight.ScopeOrg, 1, 1, 1, 1}, fields(q.refused(zebraGLM)))
		for _, k := range q.Keys(0) {
			require.LessOrEqual(t, k.Waiters, 1)
		}

		// Meanwhile the first key, which it had got past, is taken by somebody else: back there, with its place in time.
		again := q.take(acmeGLM)
		young := q.queue(acmeGLM)
		held[zebraYi].Release()
		require.Equal(t, []inflight.Scope{inflight.ScopeKey, inflight.ScopeKey}, q.blockedAt())
		again.Release()
		s := a.granted()
		require.True(t, young.waits())
		s.Release()
		young.granted().Release()
		q.empty()
	})
}

// Keys that share a count may have different limits on it: the refusal names the one that had no room in the end.
func TestRefusalNamesTheKeyThatHadNoRoom(t *testing.T) {
	orgLimit := map[inflight.Key]int{acmeGLM: 1, acmeQwen: 1}
	limits := func(k inflight.Key) inflight.Limits { return inflight.Limits{Org: orgLimit[k]} }
	inQueueTest(t, limits, func(q *queueTest) {
		t := q.t
		held := q.take(acmeGLM)
		a := q.queue(acmeGLM, inflight.Also(acmeQwen), inflight.MaxWait(time.Second))
		orgLimit[acmeGLM] = 2
		q.LimitsChanged()
		require.True(t, a.waits())
		time.Sleep(time.Second)
		require.Equal(t, []any{acmeQwen, inflight.ScopeOrg, 1, 1, 1}, fields(asLimitError(t, a.failed()))[:5])
		held.Release()
		q.empty()
	})
}

// Goroutines that take several keys at once in any order neither deadlock nor pass a limit, of whatever scope.
func TestAlsoUnderLoad(t *testing.T) {
	const seed = 3
	limits := inflight.Limits{Key: 2, Org: 3, Model: 3, Total: 4}
	r, err := inflight.New(inflight.Config{Limits: inflight.Fixed(limits), SweepInterval: -1})
	require.NoError(t, err)
	var (
		keys    []inflight.Key
		live    = map[inflight.Key]*atomic.Int64{{}: {}} // the weight of those who hold, by what they share
		passed  atomic.Int64
		granted atomic.Int64
		all     sync.WaitGroup
	)
	for _, org := range []string{"acme", "zebra", "nadir"} {
		live[inflight.Key{Org: org}] = &atomic.Int64{}
		for _, model := range []string{"glm", "yi", "qwen"} {
			k := inflight.Key{Org: org, Model: model}
			keys = append(keys, k)
			live[k], live[inflight.Key{Model: model}] = &atomic.Int64{}, &atomic.Int64{}
		}
	}
	limitOf := func(k inflight.Key) int {
		switch {
		case k == inflight.Key{}:
			return limits.Total
		case k.Org == "" || k.Model == "":
			return limits.Org // and that of a model
		}
		return limits.Key
	}
	rounds := 400
	if testing.Short() {
		rounds = 40
	}
	for worker := range uint64(12) {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, worker))
			for range rounds {
				taken := make([]inflight.Key, 1+rnd.IntN(3))
				counted := map[inflight.Key]bool{{}: true}
				for i := range taken {
					k := keys[rnd.IntN(len(keys))]
					taken[i] = k
					counted[k], counted[inflight.Key{Org: k.Org}], counted[inflight.Key{Model: k.Model}] = true, true, true
				}
				weight := rnd.IntN(3)
				also := []inflight.Option{inflight.Also(taken[1:]...), inflight.Weight(weight), inflight.MaxWait(time.Hour)}
				s, err := r.Acquire(t.Context(), taken[0], also...)
				if err != nil {
					continue
				}
				granted.Add(1)
				for k := range counted {
					if live[k].Add(int64(weight)) > int64(limitOf(k)) {
						passed.Add(1)
					}
				}
				for k := range counted {
					live[k].Add(-int64(weight))
				}
				s.Release()
			}
		})
	}
	all.Wait()
	require.Zero(t, passed.Load(), "a limit was passed")
	require.EqualValues(t, 12*rounds, granted.Load(), "somebody was refused")
	s := r.Stats()
	require.LessOrEqual(t, s.PeakInUse, limits.Total)
	require.LessOrEqual(t, s.PeakPerKey, limits.Key)
	require.Equal(t, s.Admitted, s.Released)
	require.Zero(t, s.InUse)
	require.Zero(t, s.Waiters)
	require.Zero(t, s.Keys)
}
