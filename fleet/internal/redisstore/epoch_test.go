package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

func (e *engine) lease(c store.Call) store.Reply {
	e.t.Helper()
	c.TTL = ttl
	reply, err := e.Lease(e.t.Context(), shard, c)
	require.NoError(e.t, err)
	return reply
}

// A shard learns on as long as there is more to tell, and not again when it has learned.
func TestMoreToTell(t *testing.T) {
	onEach(t, func(e *engine) {
		first := e.call("a")
		for range 5 {
			e.step(ttl - time.Millisecond)
			reply := e.lease(store.Call{ID: "a", More: true})
			require.Equal(e.t, first.Epoch, reply.Epoch)
			require.Equal(e.t, ttl, reply.Learning)
			require.Equal(e.t, ttl, e.call("b").Learning)
		}
		e.step(ttl - time.Millisecond)
		require.Equal(e.t, time.Millisecond, e.call("a").Learning)
		e.step(time.Millisecond)
		require.Zero(e.t, e.lease(store.Call{ID: "a", More: true}).Learning)
	})
}

// A lease that was promised and is not known gives away that data were lost, even if they look sound.
func TestPromisedLease(t *testing.T) {
	for _, c := range []struct {
		name   string
		id     string
		happen func(e *engine) // after the lease of a began
		live   int             // if it is lost
	}{
		{"it is known", "a", func(*engine) {}, 0},
		{"it is not", "c", func(*engine) {}, 3},
		{"all have left since", "c", func(e *engine) { e.leave("a"); e.leave("b") }, 1},
		{"it has ended", "c", func(e *engine) { e.step(ttl / 2); e.call("a"); e.step(ttl / 2) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *engine) {
				e.learned("a", "b")
				old := e.call("a")
				c.happen(e)
				e.step(time.Millisecond)
				now := e.clock.now.UnixMilli()
				if c.live > 0 {
					require.Equal(e.t, store.Reply{Epoch: now, Learning: ttl, Ends: e.ends(), Live: c.live},
						e.lease(store.Call{ID: c.id, Ends: old.Ends}))
					return
				}
				reply := e.lease(store.Call{ID: c.id, Ends: old.Ends})
				require.Equal(e.t, old.Epoch, reply.Epoch)
				require.Zero(e.t, reply.Learning)
			})
		})
	}
}

// That many have lost their lease is one loss, and each has something to tell: the shard learns on. What was promised since
// then may be lost as well.
func TestPromisedLeasesAreLostOnce(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		old := e.call("b").Ends
		e.step(ttl / 3)
		e.flush()
		first := e.lease(store.Call{ID: "a", Ends: old})
		e.step(ttl / 3)
		reply := e.lease(store.Call{ID: "b", Ends: old})
		require.Equal(e.t, first.Epoch, reply.Epoch)
		require.Equal(e.t, ttl, reply.Learning)
		e.step(ttl / 3)
		require.Equal(e.t, ttl-ttl/3, e.lease(store.Call{ID: "b", Ends: reply.Ends}).Learning, "it has told")
		again := e.lease(store.Call{ID: "c", Ends: reply.Ends})
		require.Greater(e.t, again.Epoch, first.Epoch)
		require.Equal(e.t, ttl, again.Learning)
	})
}

// However the clock is set, a shard does not learn for longer than a TTL.
func TestClockIsSetBackWhileLearning(t *testing.T) {
	onEach(t, func(e *engine) {
		first := e.call("a")
		e.setBack(time.Hour)
		for _, left := range []time.Duration{ttl, ttl - ttl/3, ttl - 2*(ttl/3)} {
			reply := e.call("a")
			require.Equal(e.t, left, reply.Learning)
			require.Equal(e.t, first.Epoch, reply.Epoch)
			e.step(ttl / 3)
		}
		require.Zero(e.t, e.call("a").Learning)
	})
}
