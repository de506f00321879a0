package modelcheck_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// check compares all that can be seen of the registry with the model.
func (m *machine) check() {
	synctest.Wait()
	m.checkOps()
	m.checkSlots()
	m.checkWaiters()
	m.checkKeys()
	m.checkStats()
}

// checkOps compares what became of each acquire, and of the context of each slot.
func (m *machine) checkOps() {
	for _, o := range m.ops {
		want, settled := m.model.settled[o.name]
		require.Equal(m, settled, o.done(), "%s has settled: %+v", o.name, want)
		if !settled {
			continue
		}
		switch {
		case want.err != nil:
			require.Equal(m, want.err, o.err, o.name)
		case want.limit != (inflight.LimitError{}):
			m.checkLimitError(o, want)
		default:
			require.NoError(m, o.err, o.name)
			cause := m.model.causes[o.name]
			require.Equal(m, cause, context.Cause(o.ctx), "why the context of %s ended", o.name)
			ctx := o.slot.Context(context.Background())
			_ = ctx.Done()
			require.Equal(m, cause, context.Cause(ctx), "the same, taken later")
		}
	}
}

func (m *machine) checkLimitError(o *op, want outcome) {
	var e *inflight.LimitError
	require.ErrorAs(m, o.err, &e, o.name)
	require.ErrorIs(m, e, inflight.ErrLimit)
	got := inflight.LimitError{
		Key: e.Key, Scope: e.Scope, InUse: e.InUse, Limit: e.Limit, Weight: e.Weight, Waiters: e.Waiters,
	}
	if want.self {
		got.Waiters, want.limit.Waiters = 0, 0
	}
	require.Equal(m, want.limit, got, "why %s was refused", o.name)
	require.Equal(m, want.queue, errors.Is(o.err, inflight.ErrTooManyWaiters), "%s: %v", o.name, e)
}

// checkSlots compares the holders in the order of their grants.
func (m *machine) checkSlots() {
	slots := m.reg.Slots(0)
	require.Equal(m, m.model.names(), labels(slots), "holders in the order of their grants")
	for i, h := range m.model.holders {
		s := slots[i]
		require.Equal(m, h.keys, append([]inflight.Key{s.Key}, s.Also...), h.name)
		require.Equal(m, h.weight, s.Weight, h.name)
		require.True(m, h.since.Equal(s.AcquiredAt), "%s: since %v, not %v", h.name, h.since, s.AcquiredAt)
		require.Equal(m, time.Since(h.since), s.Held, h.name)
		require.Equal(m, s.Held > m.model.cfg.LongHeld, s.LongHeld, h.name)
		require.False(m, s.Lost, h.name)
	}
	byID := func(a, b inflight.SlotInfo) int { return cmp.Compare(a.ID, b.ID) }
	require.True(m, slices.IsSortedFunc(slots, byID), "IDs grow in the order of grants")
	for i, o := range m.granted() {
		require.Equal(m, o.name, o.slot.Label())
		for _, other := range m.granted()[:i] {
			require.NotEqual(m, other.slot.ID(), o.slot.ID(), "%s and %s", other.name, o.name)
		}
	}
}

// names are those of the holders, in the order of their grants.
func (m *model) names() []string {
	var names []string
	for _, h := range m.holders {
		names = append(names, h.name)
	}
	return names
}

func (m *machine) checkWaiters() {
	var want []inflight.WaiterInfo
	for _, w := range m.model.waiters {
		want = append(want, inflight.WaiterInfo{
			Key: w.keys[0], Label: w.name, Weight: w.weight, Since: w.since, Blocked: w.stop.place.scope,
		})
	}
	got := m.reg.Waiters(0)
	for i := range min(len(got), len(want)) {
		if got[i].Since.Equal(want[i].Since) {
			got[i].Since = want[i].Since // one may tell the time of day in another way
		}
	}
	require.Equal(m, want, got, "waiters in the order of their arrival")
}

func (m *machine) checkKeys() {
	want := m.model.keys()
	slices.SortFunc(want, func(a, b inflight.KeyInfo) int {
		return cmp.Or(
			cmp.Compare(b.InUse, a.InUse), cmp.Compare(b.Waiters, a.Waiters),
			cmp.Compare(a.Key.String(), b.Key.String()),
		)
	})
	require.Equal(m, want, slices.Clip(append([]inflight.KeyInfo(nil), m.reg.Keys(0)...)), "live keys")
	for _, k := range keys {
		require.Equal(m, m.model.inUse(place{inflight.ScopeKey, k}), m.reg.InUse(k), "in use of %v", k)
	}
}

func (m *machine) checkStats() {
	got, now := m.reg.Stats(), time.Now()
	s := &m.model.stats
	ever, recent := most(s.peaks), most(s.peaks[max(len(s.peaks)-2, 0):])
	want := inflight.Stats{
		InUse: m.model.inUse(place{scope: inflight.ScopeTotal}), Holders: len(m.model.holders),
		Keys: len(m.model.keys()), Waiters: len(m.model.waiters),
		Admitted: s.admitted, Released: s.released, Evicted: s.evicted,
		Waited: s.waited, Canceled: s.canceled, Closed: s.closed, Rejected: s.rejected,
		PeakInUse: ever.inUse, PeakPerKey: ever.perKey,
		RecentPeakInUse: recent.inUse, RecentPeakPerKey: recent.perKey,
		Sweeps: uint64(len(s.peaks) - 1), LastSweep: s.lastSweep,
		Hold: got.Hold, Wait: got.Wait, // below
	}
	want.MaxPerKey = m.model.use().perKey
	for _, h := range m.model.holders {
		age := now.Sub(h.since)
		want.OldestHeld = max(want.OldestHeld, age)
		if age > m.model.cfg.LongHeld {
			want.LongHeld++
		}
	}
	require.Equal(m, want, got, "stats")
	require.Equal(m, s.held, got.Hold.Count())
	require.InDelta(m, s.heldFor.Seconds(), got.Hold.Sum, 1e-6)
	require.Equal(m, s.waits, got.Wait.Count())
	require.InDelta(m, s.waitedFor.Seconds(), got.Wait.Sum, 1e-6)
}
