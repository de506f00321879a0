package inflight_test

import (
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestS14DroppedConnectionIsFoundLost(t *testing.T) {
	w := newWeb(t, 1)
	s := newSite(t, "h1", w.behind(func(w http.ResponseWriter, _ *http.Request) { upgrade(w) }))
	p := dialUpgrade(t, s)
	lost := collect(t, w)
	require.Equal(t, webKey, lost.Key)
	w.is(t, 1)

	// What is dropped is closed by the garbage collector, as without the middleware.
	hungUp := make(chan error, 1)
	go func() {
		_, err := p.in.ReadByte()
		hungUp <- err
	}()
	eventually(t, func() bool {
		runtime.GC()
		return len(hungUp) == 1
	})
	require.NotErrorIs(t, <-hungUp, os.ErrDeadlineExceeded)
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

// A WebSocket may stay for days: it should not keep in memory what served its handshake.
func TestS13ConnectionKeepsNoResponseWriter(t *testing.T) {
	w := newWeb(t, 1)
	ours, theirs := net.Pipe()
	closeLater(t, theirs)
	var conn net.Conn
	h := w.behind(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		conn, _, err = http.NewResponseController(w).Hijack()
		require.NoError(t, err)
	})
	freed := make(chan bool, 1)
	func() {
		writer := &hijackable{ResponseWriter: &bareWriter{}, conn: ours}
		runtime.AddCleanup(writer, func(c chan bool) { c <- true }, freed)
		h.ServeHTTP(writer, upgradeRequest())
	}()
	eventually(t, func() bool {
		runtime.GC()
		return len(freed) == 1
	})
	w.is(t, 1)
	require.NoError(t, conn.Close())
	w.empty(t)
}
