package inflight_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// The case twice: however often a slot is released, and by however many, room grows by exactly one.
func TestTwice(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 3})
	defer take(t, r, acmeGLM).Release()
	defer take(t, r, acmeGLM).Release()
	s := take(t, r, acmeGLM)
	s.Release()
	s.Release()
	require.Equal(t, 2, r.InUse(acmeGLM))
	admits(t, r, acmeGLM, 1)

	s = take(t, r, acmeGLM)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(s.Release)
	}
	wg.Wait()
	require.Equal(t, 2, r.InUse(acmeGLM))
	require.EqualValues(t, 3, r.Stats().Released)
	admits(t, r, acmeGLM, 1)
}

// The case twice-other-holds: a second release frees nothing of anybody else's, who may be in the same record by now.
func TestTwiceOtherHolds(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 2})
	a, b := take(t, r, acmeGLM), take(t, r, acmeGLM)
	a.Release()
	a.Release()
	require.Equal(t, 1, r.InUse(acmeGLM))
	c := take(t, r, acmeGLM)
	a.Release()
	require.Equal(t, 2, r.InUse(acmeGLM))
	b.Release()
	d := take(t, r, zebraYi)
	a.Release()
	b.Release()
	require.Equal(t, []int{1, 1}, []int{r.InUse(acmeGLM), r.InUse(zebraYi)})
	c.Release()
	d.Release()
	requireEmpty(t, r)
}

// The case recreated: who was evicted cannot release whoever came after.
func TestRecreated(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 1})
	a := take(t, r, acmeGLM)
	require.True(t, r.Evict(a.ID()))
	requireEmpty(t, r)
	b := take(t, r, acmeGLM)
	a.Release()
	require.Equal(t, 1, r.InUse(acmeGLM))
	refuses(t, r, acmeGLM)
	b.Release()
	requireEmpty(t, r)
	require.EqualValues(t, 1, r.Stats().Released)
	require.EqualValues(t, 1, r.Stats().Evicted)
}

// The case negative: no sequence of calls makes a count negative, wrong, or more than the limit.
//
//slotvet:ignore some are held to the end of the test
func TestNegative(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const limit = 7
	r := newRegistry(t, inflight.Limits{Key: limit})
	keys := []inflight.Key{acmeGLM, acmeQwen, zebraGLM}
	var slots [12]*inflight.Slot // among them some that have ended
	live := make(map[*inflight.Slot][]inflight.Key)
	count := func(k inflight.Key) (n int) {
		for s, at := range live {
			if slices.Contains(at, k) {
				n += s.Weight()
			}
		}
		return n
	}
	for range 20_000 {
		i := rnd.IntN(len(slots))
		switch s := slots[i]; rnd.IntN(5) {
		case 0, 1:
			k, also, weight := keys[rnd.IntN(3)], keys[rnd.IntN(3)], rnd.IntN(4)
			fits := count(k)+weight <= limit && count(also)+weight <= limit
			slot, err := r.TryAcquire(k, inflight.Weight(weight), inflight.Also(also))
			require.Equal(t, fits, err == nil)
			if fits {
				s.Release()
				delete(live, s)
				slots[i] = slot
				live[slot] = []inflight.Key{k, also}
			}
		case 2, 3:
			s.Release()
			delete(live, s)
		case 4:
			if s != nil {
				require.Equal(t, live[s] != nil, r.Evict(s.ID()))
				delete(live, s)
			}
		}
		for _, k := range keys {
			require.Equal(t, count(k), r.InUse(k))
		}
	}
	require.Len(t, r.Slots(0), len(live))
	releaseAll(slots[:])
	requireEmpty(t, r)
}

func TestReleaseOfNothing(*testing.T) {
	var s *inflight.Slot
	s.Release()
	new(inflight.Slot).Release()
}

// A copy of a slot is a mistake, but not one that frees what others hold.
func TestReleaseOfACopy(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: 1})
	s := take(t, r, acmeGLM)
	held := reflect.New(reflect.TypeFor[inflight.Slot]()) // a plain copy is what go vet warns of
	held.Elem().Set(reflect.ValueOf(s).Elem())
	c, ok := reflect.TypeAssert[*inflight.Slot](held)
	require.True(t, ok)
	s.Release()
	other := take(t, r, acmeGLM)
	c.Release()
	require.Equal(t, 1, r.InUse(acmeGLM))
	other.Release()
	c.Release()
	requireEmpty(t, r)
}

// What a slot says of itself stays true after it has ended, and after its record was used again.
func TestSlotSaysWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, inflight.Limits{})
		start := time.Now()
		time.Sleep(3 * time.Second)
		s := take(t, r, acmeGLM, inflight.Label("req-1"), inflight.Weight(5), inflight.Also(zebraYi))
		check := func() {
			t.Helper()
			require.Equal(t, acmeGLM, s.Key())
			require.Equal(t, "req-1", s.Label())
			require.Equal(t, 5, s.Weight())
			require.Equal(t, 3*time.Second, s.AcquiredAt().Sub(start))
			require.EqualValues(t, 1, s.ID())
		}
		check()
		time.Sleep(time.Second)
		s.Release()
		check()
		other := take(t, r, zebraGLM, inflight.Label("req-2")) //slotvet:ignore held to the end of the test
		check()
		require.EqualValues(t, 2, other.ID())
		require.Equal(t, time.Second, other.AcquiredAt().Sub(s.AcquiredAt()))
	})
}

// A record that is used again keeps nothing of what it was used for before.
func TestRecordsAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{SweepInterval: -1, LongHeld: time.Minute})
		busy := take(t, r, acmeGLM, inflight.Label("busy"), inflight.Weight(3), inflight.Also(acmeQwen))
		lost := lose(t, r, 1, nil)
		sweepTwice(r)
		time.Sleep(time.Hour)
		r.Sweep()
		require.True(t, r.Cancel(busy.ID(), nil))
		require.Equal(t, []int{2, 1}, []int{r.Stats().LongHeld, r.Stats().LostHeld})
		busy.Release()
		require.True(t, r.Evict(lost[0]))
		for range 2 {
			slots := []*inflight.Slot{take(t, r, zebraYi), take(t, r, zebraYi)}
			infos := r.Slots(0)
			require.Len(t, infos, 2)
			for i := range infos {
				require.Equal(t, inflight.SlotInfo{
					ID: slots[i].ID(), Key: zebraYi, Weight: 1, AcquiredAt: infos[i].AcquiredAt,
				}, infos[i])
				requireLive(t, slots[i].Context(t.Context()))
			}
			require.Equal(t, []int{0, 0}, []int{r.Stats().LongHeld, r.Stats().LostHeld})
			releaseAll(slots)
			require.Equal(t, []int{0, 0}, []int{r.Stats().LongHeld, r.Stats().LostHeld})
		}
		requireEmpty(t, r)
	})
}

// IDs are unique, never used again, and ascend with admission, whoever asks.
//
//slotvet:ignore every other one is held to the end of the test
func TestIDs(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Key: inflight.Unlimited})
	const goroutines, each = 64, 200
	ids := make([][]uint64, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				s, err := r.TryAcquire(acmeGLM)
				if err != nil {
					return
				}
				ids[g] = append(ids[g], s.ID())
				if g%2 == 0 {
					s.Release()
				}
			}
		})
	}
	wg.Wait()
	var all []uint64
	for _, own := range ids {
		require.Len(t, own, each)
		require.True(t, slices.IsSorted(own), "a later slot has a larger id")
		all = append(all, own...)
	}
	slices.Sort(all)
	require.NotZero(t, all[0])
	require.Len(t, slices.Compact(all), goroutines*each, "an id twice")

	slots := r.Slots(0)
	require.Len(t, slots, goroutines/2*each)
	require.True(t, slices.IsSortedFunc(slots, func(a, b inflight.SlotInfo) int { return int(a.ID) - int(b.ID) }))
	require.True(t, slices.IsSortedFunc(slots, func(a, b inflight.SlotInfo) int { return a.AcquiredAt.Compare(b.AcquiredAt) }))
}
