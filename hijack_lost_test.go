package inflight_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestS14DroppedConnectionIsFoundLost(t *testing.T) {
	w := newWeb(t, 1)
	s := newSite(t, "h1", w.behind(func(w http.ResponseWriter, _ *http.Request) { upgrade(w) }))
	p := dialUpgrade(t, s)
	lost := collect(t, w)
	require.Equal(t, webKey, lost.Key)
	p.hangsUp() // what is dropped is closed by the garbage collector, as without the middleware
	w.is(t, 1)
	require.True(t, w.Evict(lost.ID))
}

func TestC4DroppedConnectionIsFoundLost(t *testing.T) {
	w := newWeb(t, 1)
	s := newEchoSite(t, "h1")
	func() {
		req := newRequest(t.Context(), t, s.URL)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		_, err := w.over(s.transport).RoundTrip(req)
		require.NoError(t, err)
	}()
	w.is(t, 1)
	require.Equal(t, webKey, collect(t, w).Key)
	require.True(t, w.Evict(w.Slots(1)[0].ID))
	w.empty(t)
}
