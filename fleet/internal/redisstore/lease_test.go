package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

func TestFirstCallBeginsToLearn(t *testing.T) {
	onEach(t, func(e *engine) {
		born := e.clock.now.UnixMilli()
		require.Equal(e.t, store.Reply{Epoch: born, Learning: ttl, Ends: e.ends(), Live: 1}, e.call("a"))
		e.step(time.Second)
		require.Equal(e.t, store.Reply{Epoch: born, Known: true, Learning: ttl - time.Second, Ends: e.ends(), Live: 1}, e.call("a"))
		e.step(ttl - time.Second)
		require.Equal(e.t, store.Reply{Epoch: born, Known: true, Ends: e.ends(), Live: 1}, e.call("a"))
	})
}

// While the shard learns it grants nothing, and counts what everybody says to have, also one that had no lease.
func TestLearning(t *testing.T) {
	onEach(t, func(e *engine) {
		require.Equal(e.t, store.Answer{Granted: 3, Keep: -1}, e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 3, Floor: 2}))
		short := store.Answer{Granted: 2, Others: 3, Short: true, Keep: -1}
		require.Equal(e.t, short, e.ask("b", store.Entry{Name: "x", Limit: 4, Have: 1, Need: 1, Floor: 2}))
		// What was short is not contention, and more than the limit is no reason to give back: not all is known yet.
		require.Equal(e.t, store.Answer{Granted: 3, Others: 2, Keep: -1}, e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 3}))

		e.step(ttl - time.Millisecond)
		require.Equal(e.t, time.Millisecond, e.call("a").Learning)
		require.True(e.t, e.ask("b", store.Entry{Name: "x", Limit: 6, Have: 2, Need: 1}).Short)
		e.step(time.Millisecond)
		require.Equal(e.t, store.Answer{Granted: 3, Others: -1, Keep: -1}, e.ask("a", store.Entry{Name: "x", Limit: 6, Have: 3}))
		require.False(e.t, e.ask("a", store.Entry{Name: "x", Limit: 9, Have: 2, Need: 1}).Contended)
		require.Equal(e.t, store.Answer{Granted: 3, Others: 3, Contended: true, Keep: -1},
			e.ask("b", store.Entry{Name: "x", Limit: 6, Have: 2, Need: 1}), "little is left")
	})
}

func TestProcessWithoutLeaseIsNotHeard(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a")
		e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 1})

		reply := e.call("b", store.Entry{Name: "x", Limit: 4, Have: 3})
		require.False(e.t, reply.Known)
		require.Empty(e.t, reply.Answers)
		require.Equal(e.t, 2, reply.Live, "its lease begins all the same")
		require.Zero(e.t, e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 1, Need: 1}).Others)

		require.Equal(e.t, 3, e.ask("b", store.Entry{Name: "x", Limit: 4, Have: 3}).Granted)
	})
}

func TestLeaseEnds(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 4})
		e.step(ttl / 2)
		e.call("b")
		e.step(ttl/2 - time.Millisecond)
		require.Equal(e.t, 4, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 1}).Others)
		e.step(time.Millisecond)
		require.Equal(e.t, store.Answer{Granted: 1, Keep: -1}, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 1}))
		require.False(e.t, e.call("a").Known)

		e.step(ttl / 2)
		e.call("a")
		e.step(ttl / 2)
		require.False(e.t, e.call("b").Known, "also if nobody has called since its lease ended")
	})
}

func TestEpoch(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(e *engine)
		fresh  bool // whether it makes for a new epoch
	}{
		{"nothing", func(*engine) {}, false},
		{"all data are lost", func(e *engine) { e.step(1); e.flush() }, true},
		{"one has left", func(e *engine) { e.leave("a") }, false},
		{"all have left", func(e *engine) { e.leave("a"); e.leave("b") }, false},
		{"all have left long ago", func(e *engine) { e.leave("a"); e.leave("b"); e.step(store.Idle - 1) }, false},
		{"all have left and are forgotten", func(e *engine) { e.leave("a"); e.leave("b"); e.step(store.Idle) }, true},
		{"all leases have ended", func(e *engine) { e.step(ttl) }, true},
		{"all leases have ended, and a process leaves", func(e *engine) { e.step(ttl); e.leave("a") }, true},
		{"all leases have ended, and all processes leave", func(e *engine) { e.step(ttl); e.leave("a"); e.leave("b") }, true},
		{"all leases have ended long ago", func(e *engine) { e.step(2*store.Idle - 1) }, true},
		{"one lease has ended, and the other leaves", func(e *engine) {
			e.step(ttl / 2)
			e.call("b")
			e.step(ttl / 2)
			e.leave("b")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *engine) {
				e.learned("a", "b")
				old := e.call("a").Epoch
				c.happen(e)
				reply := e.call("c")
				require.Equal(e.t, c.fresh, reply.Epoch != old)
				require.Equal(e.t, c.fresh, reply.Learning == ttl)
				require.Equal(e.t, !c.fresh, reply.Learning == 0)
			})
		})
	}
}

// An epoch has another name than the one before, even if the clock has been set back to before that one began.
func TestEpochIsNew(t *testing.T) {
	onEach(t, func(e *engine) {
		old := e.call("a").Epoch
		e.clock.now = e.clock.now.Add(-2 * ttl)
		e.step(0)
		require.Equal(e.t, old, e.call("a").Epoch)
		e.step(ttl)
		require.Equal(e.t, old+1, e.call("a").Epoch)
	})
}

func TestLeave(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 4})
		require.True(e.t, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 1}).Short)
		e.leave("a")
		require.Equal(e.t, store.Answer{Granted: 4, Keep: -1}, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 4}))
		require.Equal(e.t, 1, e.call("b").Live)
	})
}

func TestCensus(t *testing.T) {
	onEach(t, func(e *engine) {
		for _, id := range []string{"0c", "0a", "ff", "9"} {
			e.call(id)
			e.step(time.Second) // the order of leases is not that of the IDs
		}
		for i, id := range []string{"0a", "0c", "9", "ff"} {
			call := store.Call{ID: id, TTL: ttl, Census: true}
			reply, err := e.Lease(e.t.Context(), shard, call)
			require.NoError(e.t, err)
			require.Equal(e.t, i, reply.Rank)
			require.Equal(e.t, 4, reply.Live)
			call.Census = false
			reply, err = e.Lease(e.t.Context(), shard, call)
			require.NoError(e.t, err)
			require.Zero(e.t, reply.Rank)
		}
	})
}

func TestShardsAreApart(t *testing.T) {
	onEach(t, func(e *engine) {
		e.call("a")
		reply, err := e.Lease(e.t.Context(), shard+1, store.Call{ID: "b", TTL: ttl})
		require.NoError(e.t, err)
		require.Equal(e.t, 1, reply.Live)
	})
}

func TestRefusedCalls(t *testing.T) {
	onEach(t, func(e *engine) {
		for name, c := range map[string]store.Call{
			"no ID":          {TTL: ttl},
			"ID of the mark": {ID: "!", TTL: ttl},
			"no TTL":         {ID: "a", TTL: time.Millisecond - 1},
			"no name":        {ID: "a", TTL: ttl, Entries: []store.Entry{{}}},
			"Limit":          {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Limit: -1}}},
			"Seq":            {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Seq: store.Max + 1}}},
			"Have":           {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Have: -1}}},
			"Need":           {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Need: -1}}},
			"Head":           {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Head: -1}}},
			"more than Need": {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Need: 1, Head: 2}}},
			"Ends":           {ID: "a", TTL: ttl, Ends: -1},
			"Slack":          {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Slack: store.Max + 1}}},
			"Floor":          {ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Floor: store.Max + 1}}},
		} {
			_, err := e.Lease(e.t.Context(), shard, c)
			require.Error(e.t, err, name)
		}
		require.Equal(e.t, 1, e.call("b").Live, "nothing has been written")
	})
}
