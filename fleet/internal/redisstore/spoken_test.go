package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// Whoever renews what it has hears once that somebody was short since it last did, however long ago that is.
func TestDenialIsHeardLater(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		has := store.Entry{Name: "x", Limit: 4, Have: 3}
		e.ask("a", has)
		e.step(time.Millisecond)
		require.True(e.t, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 2, Head: 2}).Short)
		e.step(ttl / 3)
		require.Equal(e.t, store.Answer{Granted: 3, Contended: true, Keep: -1}, e.ask("a", has))
		require.Equal(e.t, store.Answer{Granted: 3, Others: -1, Keep: -1}, e.ask("a", has))

		require.True(e.t, e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 3, Need: 2}).Short)
		e.step(ttl / 3)
		require.Equal(e.t, store.Answer{Granted: 3, Others: -1, Keep: -1}, e.ask("a", has), "its own denial")
		e.step(time.Millisecond)
		require.True(e.t, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 2, Head: 2}).Short)
		e.setBack(ttl / 3)
		require.False(e.t, e.ask("a", has).Contended, "it is not to be heard until the clock says so again")
	})
}

// Two processes use a limit of 1 in turn, too seldom to wait for each other. Neither keeps it.
func TestLastIsNotKept(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		one := store.Entry{Name: "x", Limit: 1, Need: 1}
		require.Equal(e.t, store.Answer{Granted: 1, Keep: -1}, e.ask("a", one), "nobody else wants it")
		require.True(e.t, e.ask("b", one).Short)
		e.ask("a", store.Entry{Name: "x", Limit: 1})
		last := store.Answer{Granted: 1, Contended: true, Keep: -1}
		for range 2 {
			e.step(ttl / 3)
			require.Equal(e.t, last, e.ask("a", one))
			e.ask("a", store.Entry{Name: "x", Limit: 1})
		}
		e.step(ttl/3 - time.Millisecond)
		require.Equal(e.t, last, e.ask("b", one))
		e.ask("b", store.Entry{Name: "x", Limit: 1})
		e.step(time.Millisecond)
		last.Contended = false
		require.Equal(e.t, last, e.ask("b", one), "nobody else wants it any more")
	})
}
