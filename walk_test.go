package inflight_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func takeMany(t *testing.T, r *inflight.Registry, n int) []*inflight.Slot {
	t.Helper()
	slots := make([]*inflight.Slot, n)
	for i := range slots {
		slots[i] = take(t, r, keyOf("acme", strconv.Itoa(i)))
	}
	return slots
}

// A walk does not keep anybody waiting for longer than a batch takes, and survives what happens meanwhile.
func TestWalkLetsOthersIn(t *testing.T) {
	const n = 1000
	r := newRegistry(t, inflight.Limits{})
	slots := takeMany(t, r, n)
	seen, batch := 0, 0
	var last uint64
	r.WalkSlots(func() {
		require.LessOrEqual(t, batch, inflight.Batch)
		batch = 0
		slots[last-1].Release() // the one just seen; it would block for ever if the lock were held
		if last < n {
			slots[last].Release() // the next in line
		}
	}, func(id uint64) {
		require.Greater(t, id, last)
		last = id
		seen++
		batch++
	})
	require.Equal(t, n-n/(inflight.Batch+1), seen, "all but the one that went away before each batch")
	releaseAll(slots)
	require.Zero(t, r.Gates())
}

// A key that becomes idle and live again while somebody looks at the keys is not seen twice.
func TestWalkMeetsNoKeyTwice(t *testing.T) {
	const n = 500
	r := newRegistry(t, inflight.Limits{})
	slots := make(map[inflight.Key]*inflight.Slot)
	for _, s := range takeMany(t, r, n) {
		slots[s.Key()] = s
	}
	seen := make(map[inflight.Key]int)
	r.WalkKeys(func() {
		for k := range seen {
			slots[k].Release()
			slots[k] = take(t, r, k)
		}
	}, func(k inflight.Key) { seen[k]++ })
	require.Len(t, seen, n)
	for k, times := range seen {
		require.Equal(t, 1, times, k)
	}
	for _, s := range slots {
		s.Release()
	}
}

// What is gathered in batches is whole and in order.
func TestReadsOfMany(t *testing.T) {
	const n = 300
	r := newRegistry(t, inflight.Limits{})
	slots := takeMany(t, r, n)
	require.Len(t, r.Keys(0), n)
	for _, limit := range []int{0, 1, inflight.Batch, inflight.Batch + 1, 2 * inflight.Batch, n, n + 1} {
		want := n
		if limit > 0 {
			want = min(limit, n)
		}
		infos := r.Slots(limit)
		require.Len(t, infos, want)
		for i, s := range infos {
			require.Equal(t, slots[i].ID(), s.ID)
		}
	}
	releaseAll(slots)
}
