package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// When less is left than one for each of 3 processes, or half of a small limit, nobody is to keep what is idle. Whoever
// renews what it has is told, for a while.
func TestLittleIsLeft(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b", "c")
		for _, c := range []struct {
			limit, left int
			little      bool
		}{{12, 3, false}, {12, 2, true}, {5, 2, false}, {5, 1, true}} {
			reply := e.ask("a", store.Entry{Name: "x", Limit: c.limit, Need: c.limit - c.left})
			require.Equal(e.t, store.Answer{Granted: c.limit - c.left, Contended: c.little, Keep: -1}, reply)
			looked := map[bool]store.Answer{
				true:  {Others: c.limit - c.left, Contended: true, Keep: -1},
				false: {Others: -1, Keep: -1},
			}
			require.Equal(e.t, looked[c.little], e.ask("b", store.Entry{Name: "x", Limit: c.limit}))
			e.step(store.Window)
			require.Equal(e.t, looked[false], e.ask("b", store.Entry{Name: "x", Limit: c.limit}))
			e.ask("a", store.Entry{Name: "x", Limit: c.limit})
		}
		e.leave("b")
		e.leave("c")
		require.False(e.t, e.ask("a", store.Entry{Name: "x", Limit: 5, Need: 5}).Contended, "with nobody else, all is its own")
	})
}
