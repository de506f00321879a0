package inflight_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// idsOf are the ids of slots, in their order.
func idsOf(infos []inflight.SlotInfo) []uint64 {
	var ids []uint64
	for i := range infos {
		ids = append(ids, infos[i].ID)
	}
	return ids
}

// A slot is long held when it is held strictly longer than LongHeld: 30 min, unless it is set, and never if that is
// negative.
func TestLongHeldIsStrictlyLonger(t *testing.T) {
	for name, test := range map[string]struct {
		longHeld, threshold time.Duration
	}{
		"default":  {0, 30 * time.Minute},
		"set":      {time.Second, time.Second},
		"negative": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryOf(t, inflight.Config{SweepInterval: -1, LongHeld: test.longHeld})
				s := take(t, r, acmeGLM)
				defer s.Release()
				if test.threshold == 0 {
					time.Sleep(10 * 365 * 24 * time.Hour)
					require.Empty(t, r.Sweep().LongHeld)
					require.False(t, r.Slots(0)[0].LongHeld)
					require.Zero(t, r.Stats().LongHeld)
					return
				}
				time.Sleep(test.threshold)
				rep := r.Sweep()
				require.Empty(t, rep.LongHeld)
				require.Empty(t, rep.NewlyLongHeld)
				require.False(t, r.Slots(0)[0].LongHeld)
				require.Zero(t, r.Stats().LongHeld)
				time.Sleep(time.Nanosecond)
				require.True(t, r.Slots(0)[0].LongHeld)
				require.Equal(t, 1, r.Stats().LongHeld)
				rep = r.Sweep()
				require.Equal(t, []uint64{s.ID()}, idsOf(rep.LongHeld))
				require.Equal(t, rep.LongHeld, rep.NewlyLongHeld)
				require.Equal(t, test.threshold+1, rep.LongHeld[0].Held)
				require.True(t, rep.LongHeld[0].LongHeld)
				require.Equal(t, 1, r.Stats().LongHeld)
			})
		})
	}
}

// Each slot is news once, however many sweeps find it, and is listed as long as it is held.
func TestSweepReportsEachSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := new(records)
		r := registryOf(t, inflight.Config{
			SweepInterval: -1, LongHeld: time.Hour, MaxHold: 2 * time.Hour, Logger: slog.New(logs),
		})
		var slots []*inflight.Slot
		var listed []uint64
		for i := range 4 {
			slots = append(slots, take(t, r, acmeGLM))
			time.Sleep(time.Hour)
			for sweep := range 2 {
				rep := r.Sweep()
				var long, tooLong []uint64 // what is news: held for more than an hour, more than two
				if sweep == 0 && i >= 1 {
					long = []uint64{uint64(i)}
				}
				if sweep == 0 && i >= 2 {
					tooLong = []uint64{uint64(i - 1)}
				}
				require.Equal(t, long, idsOf(rep.NewlyLongHeld))
				require.Equal(t, tooLong, idsOf(rep.HeldTooLong))
				if listed = append(listed, long...); len(listed) > 0 {
					require.Equal(t, listed, idsOf(rep.LongHeld))
				}
				require.Len(t, logs.take(), len(long)+len(tooLong))
				require.Equal(t, len(listed), r.Stats().LongHeld)
			}
		}
		slots[1].Release()
		require.Equal(t, []uint64{1, 3}, idsOf(r.Sweep().LongHeld))
		require.Equal(t, 2, r.Stats().LongHeld)
		releaseAll(slots)
		require.Zero(t, r.Stats().LongHeld)
		requireEmpty(t, r)
	})
}

// The case orphan: a slot that is never released, under steady traffic of the same key, grows old and is reported once.
func TestOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var news, found int
		var age time.Duration
		r := registryOf(t, inflight.Config{LongHeld: 10 * time.Minute, OnSweep: func(rep inflight.SweepReport) {
			news += len(rep.NewlyLongHeld)
			for _, s := range rep.LongHeld {
				found++
				age = s.Held
			}
		}})
		orphan := take(t, r, acmeGLM)
		for minute := range 60 {
			held := time.Duration(minute+1) * time.Minute
			for range 60 {
				s := take(t, r, acmeGLM)
				time.Sleep(time.Second)
				s.Release()
			}
			synctest.Wait()
			require.Equal(t, held, r.Slots(1)[0].Held)
			require.Equal(t, orphan.ID(), r.Slots(1)[0].ID)
			require.Equal(t, held, r.Stats().OldestHeld)
		}
		require.Equal(t, 1, news)
		require.Equal(t, 50, found)
		require.Equal(t, time.Hour, age)
		orphan.Release()
		requireEmpty(t, r)
	})
}

// MaxHold ends the slot's contexts at the first sweep after it was exceeded, once, and the slot counts on.
func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{
			Limits: perKey(1), SweepInterval: time.Minute, MaxHold: 90 * time.Second, Logger: slog.New(new(records)),
		})
		s := take(t, r, acmeGLM)
		ctx := s.Context(t.Context())
		requireLive(t, ctx)
		time.Sleep(2*time.Minute - 1)
		requireLive(t, ctx) // for the sweep has not come yet
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireEnded(t, ctx, inflight.ErrHeldTooLong)
		refuses(t, r, acmeGLM)
		require.Empty(t, r.Sweep().HeldTooLong)
		s.Release()
		admits(t, r, acmeGLM, 1)
		requireEnded(t, ctx, inflight.ErrHeldTooLong)
	})
}

func TestMaxHoldIsStrictlyLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{SweepInterval: -1, MaxHold: time.Minute})
		s := take(t, r, acmeGLM)
		defer s.Release()
		time.Sleep(time.Minute)
		require.Empty(t, r.Sweep().HeldTooLong)
		requireLive(t, s.Context(t.Context()))
		time.Sleep(time.Nanosecond)
		require.Equal(t, []uint64{s.ID()}, idsOf(r.Sweep().HeldTooLong))
		requireEnded(t, s.Context(t.Context()), inflight.ErrHeldTooLong)
	})
}

// Without MaxHold, and with a negative one, no time ends a context.
func TestNoMaxHold(t *testing.T) {
	for _, hold := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			r := registryOf(t, inflight.Config{SweepInterval: -1, MaxHold: hold})
			s := take(t, r, acmeGLM)
			defer s.Release()
			time.Sleep(10 * 365 * 24 * time.Hour)
			require.Empty(t, r.Sweep().HeldTooLong)
			requireLive(t, s.Context(t.Context()))
		})
	}
}

// The log says who holds, since when and where it was acquired, if that was asked for.
func TestSweepLogs(t *testing.T) {
	for _, stack := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logs := new(records)
			r := registryOf(t, inflight.Config{
				Name: "edge", SweepInterval: -1, LongHeld: time.Minute, MaxHold: time.Hour, CaptureStack: stack,
				Logger: slog.New(logs),
			})
			acquired, err := r.Acquire(t.Context(), keyOf("a b", "glm"), inflight.Label("req-1"))
			require.NoError(t, err)
			defer acquired.Release()
			time.Sleep(time.Second)
			defer take(t, r, acmeGLM).Release()
			r.Sweep()
			require.Empty(t, logs.take(), "nothing is wrong yet")
			time.Sleep(time.Hour)
			rep := r.Sweep()

			lines := logs.take()
			require.Len(t, lines, 3)
			for i, want := range []struct {
				message, key, label string
				id                  uint64
				age                 time.Duration
			}{
				{"inflight: slot held long", `"a b"/glm`, "req-1", 1, time.Hour + time.Second},
				{"inflight: slot held long", "acme/glm", "", 2, time.Hour},
				{"inflight: slot held too long, its context is cancelled", `"a b"/glm`, "req-1", 1, time.Hour + time.Second},
			} {
				require.Equal(t, slog.LevelWarn, lines[i].level)
				require.Equal(t, want.message, lines[i].message)
				logged, ok := lines[i].attrs["stack"].(string)
				require.Equal(t, stack, ok)
				delete(lines[i].attrs, "stack")
				require.Equal(t, map[string]any{
					"registry": "edge", "id": want.id, "key": want.key, "label": want.label, "age": want.age,
				}, lines[i].attrs)
				if stack {
					requireStack(t, logged, want.id == acquired.ID())
				}
			}
			require.Equal(t, stack, rep.LongHeld[0].Stack != "")
			require.Equal(t, stack, r.Slots(0)[0].Stack != "")
			if stack {
				requireStack(t, rep.NewlyLongHeld[0].Stack, true)
				requireStack(t, rep.HeldTooLong[0].Stack, true)
				requireStack(t, r.Slots(0)[0].Stack, true)
				requireStack(t, r.Slots(0)[1].Stack, false)
			}
		})
	}
}

// requireStack checks that a stack begins with whoever acquired, which is the test itself or its helper take.
func requireStack(t *testing.T, stack string, itself bool) {
	t.Helper()
	caller, rest, _ := strings.Cut(stack, "\n")
	file, _, _ := strings.Cut(rest, "\n")
	if itself {
		require.Contains(t, caller, "inflight_test.TestSweepLogs")
		require.Contains(t, file, "sweep_test.go:")
		return
	}
	require.Contains(t, caller, "inflight_test.take")
	require.Contains(t, rest, "inflight_test.TestSweepLogs")
}

// What a sweep says of the registry as a whole.
func TestSweepSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hooked inflight.SweepReport
		r := registryOf(t, inflight.Config{
			Limits: perKey(5), SweepInterval: -1, OnSweep: func(rep inflight.SweepReport) { hooked = rep },
		})
		require.Equal(t, inflight.SweepReport{At: time.Now()}, withoutMonotonic(r.Sweep()))
		require.Equal(t, time.Now(), withoutMonotonic(hooked).At)

		slots := []*inflight.Slot{take(t, r, zebraYi), take(t, r, acmeGLM, inflight.Weight(4)), take(t, r, acmeGLM)}
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			time.Sleep(time.Second)
			go func() { _, _ = r.Acquire(ctx, acmeGLM) }() //slotvet:ignore cancelled while it waits
			synctest.Wait()
		}
		time.Sleep(time.Second)
		rep := r.Sweep()
		require.Equal(t, inflight.SweepReport{
			At: time.Now(), InUse: 6, Holders: 3, Keys: 2, Waiters: 2, LongestWait: 2 * time.Second,
			Busiest: inflight.KeyInfo{Key: acmeGLM, InUse: 5, Limit: 5, Holders: 2, Waiters: 2},
		}, withoutMonotonic(rep))
		require.Equal(t, rep, hooked)
		cancel()
		synctest.Wait()
		releaseAll(slots)
	})
}

// withoutMonotonic makes the time of a report comparable to that of a bubble.
func withoutMonotonic(rep inflight.SweepReport) inflight.SweepReport {
	rep.At = rep.At.Round(0).Local()
	return rep
}

// More long-held slots than are looked at under one lock are all found, in order.
func TestSweepOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, inflight.Config{
			Limits: perKey(inflight.Unlimited), SweepInterval: -1, LongHeld: time.Hour, MaxHold: time.Hour,
		})
		var want []uint64
		var slots []*inflight.Slot
		for range 1000 {
			slots = append(slots, take(t, r, acmeGLM))
			want = append(want, slots[len(slots)-1].ID())
		}
		time.Sleep(time.Hour + 1)
		slots = append(slots, take(t, r, acmeGLM))
		require.Equal(t, 1000, r.Stats().LongHeld)
		rep := r.Sweep()
		require.Equal(t, want, idsOf(rep.LongHeld))
		require.Equal(t, want, idsOf(rep.NewlyLongHeld))
		require.Equal(t, want, idsOf(rep.HeldTooLong))
		require.Equal(t, append(want, slots[1000].ID()), idsOf(r.Slots(0)))
		releaseAll(slots)
		requireEmpty(t, r)
	})
}
