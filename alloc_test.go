package inflight_test

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestSlotIsSmall(t *testing.T) {
	require.LessOrEqual(t, reflect.TypeFor[inflight.Slot]().Size(), uintptr(128))
}

// An acquire allocates the handle and nothing else, whatever the limits, and whether or not the key is in use.
func TestAcquireAllocatesTheHandleOnly(t *testing.T) {
	for name, limits := range map[string]inflight.Limits{
		"key limit":  {Key: 10},
		"all scopes": {Key: 10, Org: 20, Model: 20, Total: 20},
	} {
		r := newRegistry(t, limits)
		for _, k := range []inflight.Key{acmeGLM, zebraYi} { // in use, and idle
			if k == acmeGLM {
				defer take(t, r, k).Release()
			}
			for how, acquire := range map[string]func() (*inflight.Slot, error){
				"TryAcquire": func() (*inflight.Slot, error) { return r.TryAcquire(k) },
				"Acquire":    func() (*inflight.Slot, error) { return r.Acquire(t.Context(), k) },
				"with options": func() (*inflight.Slot, error) {
					return r.TryAcquire(k, inflight.Weight(2), inflight.Label("req-1"), inflight.MaxWait(0))
				},
			} {
				require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
					s, _ := acquire()
					s.Release()
				}), 1.0, "%s, %v, %s", name, k, how)
			}
		}
	}
}

// Release allocates nothing, not even the first time or the one that removes a key.
func TestReleaseAllocatesNothing(t *testing.T) {
	for name, keyAt := range map[string]func(i int) inflight.Key{
		"one key":   func(int) inflight.Key { return acmeGLM },
		"many keys": func(i int) inflight.Key { return keyOf(strconv.Itoa(i), strconv.Itoa(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			var batches [2][]*inflight.Slot // one to warm up with, of another registry
			for i := range batches {
				r := newRegistry(t, inflight.Limits{Key: inflight.Unlimited, Org: 10_000, Model: 10_000})
				for j := range 1000 {
					batches[i] = append(batches[i], take(t, r, keyAt(j)))
				}
			}
			i := 0
			require.Zero(t, testing.AllocsPerRun(1, func() {
				releaseAll(batches[i])
				i++
			}))
		})
	}
}

// A million keys that came and went leave nothing: no key, no memory.
func TestMillionKeys(t *testing.T) {
	n := sized(1_000_000)
	r := newRegistry(t, inflight.Limits{Org: 1, Model: 1, Total: 1})
	comeAndGo := func(from, to int) {
		for i := from; i < to; i++ {
			s, err := r.TryAcquire(keyOf(strconv.Itoa(i), strconv.Itoa(-i)))
			if err != nil {
				require.NoError(t, err)
			}
			s.Release()
		}
	}
	comeAndGo(0, 1000)
	before := heap()
	comeAndGo(1000, n)
	require.Less(t, heap(), before+1<<19)
	requireEmpty(t, r)
	require.EqualValues(t, n, r.Stats().Released)
}

// What many keys and holders took at once is given back when they leave.
func TestManyKeysAtOnce(t *testing.T) {
	n := max(sized(100_000), 20_000) // far more than are kept for reuse
	r := newRegistry(t, inflight.Limits{Org: 1, Model: 1})
	before := heap()
	slots := make([]*inflight.Slot, n)
	for i := range slots {
		var err error
		if slots[i], err = r.TryAcquire(keyOf(strconv.Itoa(i), strconv.Itoa(-i))); err != nil {
			require.NoError(t, err)
		}
	}
	require.Len(t, r.Keys(0), n)
	most := heap()
	releaseAll(slots)
	clear(slots)
	requireEmpty(t, r)
	require.Less(t, heap(), before+(most-before)/5)
}
