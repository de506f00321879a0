package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// waits makes a process one that was denied just now, with so much granted.
func (e *engine) waits(id string, granted int) {
	e.t.Helper()
	require.True(e.t, e.ask(id, store.Entry{Name: "x", Limit: 0, Have: granted, Need: 1}).Short)
}

func TestGrow(t *testing.T) {
	has := func(id string, granted int) func(*engine) {
		return func(e *engine) { e.ask(id, store.Entry{Name: "x", Limit: 100, Have: granted}) }
	}
	waits := func(id string, granted int) func(*engine) { return func(e *engine) { e.waits(id, granted) } }
	comesBack := func(id string, granted int) func(*engine) { return func(e *engine) { e.comesBack(id, granted, 1) } }
	type setup []func(*engine)
	for _, c := range []struct {
		name   string
		before setup
		entry  store.Entry
		want   store.Answer
	}{
		{"all that is needed", nil, store.Entry{Limit: 10, Have: 2, Need: 3}, store.Answer{Granted: 5, Keep: -1}},
		{"up to the limit", nil, store.Entry{Limit: 10, Need: 10}, store.Answer{Granted: 10, Contended: true, Keep: -1}},
		{"more than the limit", nil, store.Entry{Limit: 10, Have: 4, Need: 7}, store.Answer{Granted: 10, Short: true, Keep: -1}},
		{
			"what others leave",
			setup{has("b", 3), has("c", 4)},
			store.Entry{Limit: 10, Need: 4},
			store.Answer{Granted: 3, Others: 7, Short: true, Keep: -1},
		},
		{"nothing of a limit of 0", nil, store.Entry{Limit: 0, Need: 1}, store.Answer{Short: true, Keep: -1}},
		{
			"the limit was lowered",
			setup{has("b", 7)},
			store.Entry{Limit: 8, Have: 3, Need: 1},
			store.Answer{Granted: 3, Others: 7, Short: true, Keep: 0},
		},

		// With 3 live processes, slack is a sixth of what is left.
		{"with slack", nil, store.Entry{Limit: 19, Need: 1, Slack: 9}, store.Answer{Granted: 4, Keep: -1}},
		{"with all the slack", nil, store.Entry{Limit: 19, Need: 1, Slack: 2}, store.Answer{Granted: 3, Keep: -1}},
		{
			"slack is of what others leave",
			setup{has("b", 7)},
			store.Entry{Limit: 20, Need: 1, Slack: 9},
			store.Answer{Granted: 3, Others: 7, Keep: -1},
		},
		{
			"no slack for one that was short",
			setup{waits("a", 0)},
			store.Entry{Limit: 19, Need: 1, Slack: 9},
			store.Answer{Granted: 1, Keep: -1},
		},
		{
			"no slack while another is short",
			setup{waits("b", 0)},
			store.Entry{Limit: 19, Need: 1, Slack: 9},
			store.Answer{Granted: 1, Contended: true, Keep: -1},
		},

		// Among those who have or lack something, a third of 12 is fair: b, who waits, is owed 4.
		{
			"up to the fair share",
			setup{waits("b", 0), has("c", 4)},
			store.Entry{Limit: 12, Need: 4},
			store.Answer{Granted: 4, Others: 4, Contended: true, Keep: -1},
		},
		{
			"above it what is owed to nobody",
			setup{waits("b", 0), has("c", 3)},
			store.Entry{Limit: 12, Need: 9},
			store.Answer{Granted: 5, Others: 3, Short: true, Contended: true, Keep: -1},
		},
		{
			"above it what is owed to nobody, cut",
			setup{waits("b", 1), has("c", 5)},
			store.Entry{Limit: 12, Have: 3, Need: 3},
			store.Answer{Granted: 4, Others: 6, Short: true, Contended: true, Keep: 4},
		},
		{
			"up to the fair share for one who was denied, whatever is owed",
			setup{waits("b", 1), has("c", 5), waits("a", 2)},
			store.Entry{Limit: 9, Have: 2, Need: 2},
			store.Answer{Granted: 3, Others: 6, Short: true, First: true, Contended: true, Keep: 3},
		},
		{
			"who comes leaves one for each who has come back",
			setup{comesBack("b", 1), has("c", 5)},
			store.Entry{Limit: 9, Have: 2, Need: 2},
			store.Answer{Granted: 2, Others: 6, Short: true, Contended: true, Keep: 3},
		},
		{
			"who was denied once may never come back",
			setup{waits("b", 1), has("c", 5)},
			store.Entry{Limit: 9, Have: 2, Need: 2},
			store.Answer{Granted: 3, Others: 6, Short: true, Contended: true, Keep: 3},
		},
		{
			"nothing to one who has more",
			setup{waits("b", 0), has("c", 4)},
			store.Entry{Limit: 12, Have: 5, Need: 2},
			store.Answer{Granted: 5, Others: 4, Short: true, Contended: true, Keep: 4},
		},
		{
			"at least 1 is fair",
			setup{waits("b", 0), has("c", 1), waits("a", 0)},
			store.Entry{Limit: 2, Need: 1},
			store.Answer{Granted: 1, Others: 1, Contended: true, Keep: 1},
		},
		{
			"one who has nothing and lacks nothing has no share",
			setup{waits("b", 0), has("c", 0)},
			store.Entry{Limit: 12, Need: 9},
			store.Answer{Granted: 6, Short: true, Contended: true, Keep: -1},
		},
		{
			"what one waiter has too much is not what another lacks",
			setup{waits("b", 20), waits("c", 0)},
			store.Entry{Limit: 30, Need: 4},
			store.Answer{Granted: 4, Others: 20, Contended: true, Keep: 10},
		},
		{
			"nothing is owed above the fair share",
			setup{waits("b", 6), has("c", 1)},
			store.Entry{Limit: 12, Need: 5},
			store.Answer{Granted: 5, Others: 7, Contended: true, Keep: -1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *engine) {
				e.learned("a", "b", "c")
				for _, f := range c.before {
					f(e)
				}
				c.entry.Name, c.entry.Seq = "x", 0
				require.Equal(e.t, c.want, e.ask("a", c.entry))
				// It is written down as it was answered.
				e.call("d")
				require.Equal(e.t, c.want.Granted+c.want.Others, e.ask("d", store.Entry{Name: "x", Need: 1}).Others)
			})
		})
	}
}

// A denial is remembered for the window, and for no longer.
func TestDenialIsForgotten(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.waits("b", 0)
		e.step(store.Window - time.Millisecond)
		require.Equal(e.t, store.Answer{Granted: 5, Contended: true, Keep: -1},
			e.ask("a", store.Entry{Name: "x", Limit: 10, Need: 5, Slack: 9}))
		require.True(e.t, e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 5, Need: 1}).Short, "5 are owed to b")
		require.Equal(e.t, store.Answer{Granted: 5, Contended: true, Keep: -1},
			e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 5}))
		e.step(time.Millisecond)
		require.Equal(e.t, store.Answer{Granted: 5, Keep: -1}, e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 5}))
		require.Equal(e.t, store.Answer{Granted: 9, Contended: true, Keep: -1},
			e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 5, Need: 4}), "little is left")
	})
}

// Where there is less than one for each, those who have it give it up when they renew it.
func TestTurns(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.waits("b", 0)
		require.Equal(e.t, 0, e.ask("a", store.Entry{Name: "x", Limit: 1, Have: 1}).Keep)
		require.Equal(e.t, 1, e.ask("a", store.Entry{Name: "x", Limit: 1, Have: 1, Need: 1}).Keep)
		require.Equal(e.t, 5, e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 10}).Keep)
	})
}

// Whoever gets what it needs waits no more.
func TestDenialEndsWithGrant(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.waits("b", 0)
		require.True(e.t, e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 1}).Contended)
		require.False(e.t, e.ask("b", store.Entry{Name: "x", Limit: 10, Need: 1}).Short)
		require.False(e.t, e.ask("a", store.Entry{Name: "x", Limit: 10, Have: 1}).Contended)
	})
}

// An entry that needs nothing is written as it is. Others are looked at only if anybody was short not long ago, or if it
// says more than is known to have been granted.
func TestEntryWithoutNeed(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.ask("b", store.Entry{Name: "x", Limit: 10, Have: 4})
		has := store.Entry{Name: "x", Limit: 10, Have: 8, Slack: 1, Floor: 9}
		require.Equal(e.t, store.Answer{Granted: 8, Others: 4, Contended: true, Keep: 0}, e.ask("a", has))
		require.Equal(e.t, store.Answer{Granted: 8, Others: -1, Keep: -1}, e.ask("a", has))
		has.Have = 9
		require.Equal(e.t, store.Answer{Granted: 9, Others: 4, Contended: true, Keep: 0}, e.ask("a", has))

		e.waits("b", 2)
		for limit, keep := range map[int]int{20: -1, 11: 5, 9: 0} {
			require.Equal(e.t, store.Answer{Granted: 8, Others: 2, Contended: true, Keep: keep},
				e.ask("a", store.Entry{Name: "x", Limit: limit, Have: 8}), limit)
		}
		// One's own denial makes others be looked at, but is no contention; and to say what one has does not end it.
		require.Equal(e.t, store.Answer{Granted: 2, Others: 8, Keep: -1}, e.ask("b", store.Entry{Name: "x", Limit: 20, Have: 2}))
		require.True(e.t, e.ask("a", store.Entry{Name: "x", Limit: 20, Have: 8}).Contended)
	})
}

func TestLateAndRepeatedEntries(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		grow := store.Entry{Name: "x", Limit: 10, Seq: 100, Have: 1, Need: 3, Slack: 8}
		first := e.ask("a", grow)
		require.Equal(e.t, store.Answer{Granted: 5, Keep: -1}, first)
		require.Equal(e.t, first, e.ask("a", grow))
		e.ask("b", store.Entry{Name: "x", Limit: 10, Have: 7})
		first.Others, first.Contended, first.Keep = 7, true, 0
		require.Equal(e.t, first, e.ask("a", grow), "as it is written, not as it would be now")
		e.ask("b", store.Entry{Name: "x", Limit: 10, Have: 5})

		grow = store.Entry{Name: "x", Limit: 10, Seq: 101, Have: 5, Need: 1}
		denied := store.Answer{Granted: 5, Others: 5, Short: true, Keep: -1}
		require.Equal(e.t, denied, e.ask("a", grow))
		e.step(store.Window / 2)
		require.Equal(e.t, denied, e.ask("a", grow))
		e.step(store.Window / 2)
		require.False(e.t, e.ask("b", store.Entry{Name: "x", Limit: 10, Have: 5}).Contended, "it was not denied again")

		stale := store.Answer{Others: -1, Keep: -1, Stale: true}
		require.Equal(e.t, stale, e.ask("a", store.Entry{Name: "x", Limit: 10, Seq: 100, Have: 1, Need: 3}))
		e.ask("a", store.Entry{Name: "x", Limit: 10, Seq: 102})
		require.Equal(e.t, stale, e.ask("a", grow), "not even one that was given up since comes back")
		require.Zero(e.t, e.ask("b", store.Entry{Name: "x", Limit: 10, Have: 5, Need: 1}).Others)
	})
}

func TestRepeatedEntryWhileLearning(t *testing.T) {
	onEach(t, func(e *engine) {
		grow := store.Entry{Name: "x", Limit: 10, Seq: 100, Need: 2, Floor: 3}
		want := store.Answer{Granted: 3, Short: true, Keep: -1}
		require.Equal(e.t, want, e.ask("a", grow))
		require.Equal(e.t, want, e.ask("a", grow))
	})
}

// Entries of one call do not mix: each has its own limit and its own answer.
func TestManyEntries(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a")
		var entries []store.Entry
		var want []store.Answer
		for i := range 100 {
			entries = append(entries, store.Entry{Name: string(rune('A' + i)), Limit: i, Need: 50})
			want = append(want, store.Answer{Granted: min(i, 50), Short: i < 50, Keep: -1})
		}
		require.Equal(e.t, want, e.call("a", entries...).Answers)
	})
}

// What a process with a lease does not repeat is forgotten at last, though others keep the limit in use.
func TestForgottenEntry(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.ask("a", store.Entry{Name: "x", Limit: 10, Seq: 200, Have: 4})
		others := func() int {
			e.call("a")
			return e.ask("b", store.Entry{Name: "x", Limit: 10, Have: 1, Need: 1}).Others
		}
		for range 2*store.Memory - 1 {
			e.step(ttl / 2)
			require.Equal(e.t, 4, others())
		}
		e.step(ttl / 2)
		require.Zero(e.t, others())
		require.False(e.t, e.ask("a", store.Entry{Name: "x", Limit: 10, Seq: 199}).Stale)
	})
}

func TestLargeNumbers(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		most := store.Entry{Name: "x", Limit: store.Max, Seq: store.Max - 1, Have: store.Max - 3, Need: 1}
		require.Equal(e.t, store.Answer{Granted: store.Max - 2, Keep: -1}, e.ask("a", most))
		require.Equal(e.t, store.Answer{Granted: 2, Others: store.Max - 2, Short: true, Keep: -1},
			e.ask("b", store.Entry{Name: "x", Limit: store.Max, Have: 1, Need: 2, Slack: store.Max}))
		most.Seq--
		require.True(e.t, e.ask("a", most).Stale)
		most.Seq = store.Max
		require.False(e.t, e.ask("a", most).Stale)
	})
}
