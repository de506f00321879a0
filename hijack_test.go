package inflight_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// echoAndLeave upgrades, and leaves a goroutine behind that echoes until the client has gone. It tells of the connection.
func echoAndLeave(conns chan<- net.Conn) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf := upgrade(w)
		go func() {
			_, _ = io.Copy(conn, buf)
			conns <- conn
		}()
	}
}

func TestS13HijackedAndHandlerReturned(t *testing.T) {
	for _, protocol := range hijackProtocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 2)
			other, err := w.TryAcquire(webKey)
			require.NoError(t, err)
			returned := make(chan bool, 1)
			conns := make(chan net.Conn, 1)
			h := w.behind(echoAndLeave(conns))
			s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				returned <- true
			}))
			p := dialUpgrade(t, s)
			receive(t, returned)
			p.echoes("hello")
			w.is(t, 2)

			require.NoError(t, p.Close())
			conn := receive(t, conns)
			w.is(t, 2) // the other end has gone, but nobody has closed this one
			require.NoError(t, conn.Close())
			w.is(t, 1)
			require.ErrorIs(t, conn.Close(), net.ErrClosed, "what the connection itself says to a second Close")
			w.is(t, 1)
			other.Release()
			w.empty(t)
		})
	}
}

func TestS13ClosedWhileTheHandlerRuns(t *testing.T) {
	for _, protocol := range hijackProtocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			closed, leave := make(chan struct{}), make(chan struct{})
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, _ *http.Request) {
				conn, _ := upgrade(w)
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { _ = conn.Close() })
				}
				both.Wait()
				close(closed)
				<-leave
			}))
			p := dialUpgrade(t, s)
			receive(t, closed)
			p.hangsUp()
			w.is(t, 1)
			close(leave)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

// endings are the ways in which a registry ends a slot that its holder does not release.
var endings = map[string]func(*testing.T, *web){
	"Cancel":  func(t *testing.T, w *web) { t.Helper(); require.True(t, w.Cancel(w.Slots(1)[0].ID, nil)) },
	"Evict":   func(t *testing.T, w *web) { t.Helper(); require.True(t, w.Evict(w.Slots(1)[0].ID)) },
	"MaxHold": func(t *testing.T, w *web) { t.Helper(); require.Len(t, w.Sweep().HeldTooLong, 1) },
}

// newEndableWeb has its slots held too long from the start, for any sweep that comes.
func newEndableWeb(t *testing.T) *web {
	t.Helper()
	return newWebOf(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1}), MaxHold: time.Nanosecond})
}

func TestS14EndedFromOutside(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			for _, protocol := range hijackProtocols {
				t.Run(protocol, func(t *testing.T) {
					w := newEndableWeb(t)
					returned := make(chan bool, 1)
					conns := make(chan net.Conn, 1)
					h := w.behind(echoAndLeave(conns))
					s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						h.ServeHTTP(w, r)
						returned <- true
					}))
					p := dialUpgrade(t, s)
					receive(t, returned)
					p.echoes("hello")
					w.is(t, 1)
					end(t, w)
					p.hangsUp()
					w.becomes(t, 0)
					require.ErrorIs(t, receive(t, conns).Close(), net.ErrClosed)
					w.empty(t)
				})
			}
		})
	}
}

func TestS14EndedWhileTheHandlerRuns(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			w := newEndableWeb(t)
			causes, leave := make(chan error, 1), make(chan struct{})
			conns := make(chan net.Conn, 1)
			s := newSite(t, "h1", w.behind(func(w http.ResponseWriter, r *http.Request) {
				echoAndLeave(conns)(w, r)
				<-r.Context().Done()
				causes <- context.Cause(r.Context())
				<-leave
			}))
			p := dialUpgrade(t, s)
			p.echoes("hello")
			end(t, w)
			require.Error(t, receive(t, causes))
			p.echoes("still there") // the handler was told, and it is up to it
			close(leave)
			p.hangsUp() // but now nobody else would
			w.becomes(t, 0)
			receive(t, conns)
			w.empty(t)
		})
	}
}

func TestS14PanicAfterHijack(t *testing.T) {
	w := newWeb(t, 1)
	conns := make(chan net.Conn, 1)
	recovered := make(chan any, 1)
	h := w.behind(func(w http.ResponseWriter, r *http.Request) {
		echoAndLeave(conns)(w, r)
		panic(errPanic)
	})
	s := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { recovered <- recover() }()
		h.ServeHTTP(w, r)
	}))
	p := dialUpgrade(t, s)
	require.Same(t, errPanic, receive(t, recovered))
	p.echoes("hello")
	w.is(t, 1)
	require.NoError(t, p.Close())
	require.NoError(t, receive(t, conns).Close())
	w.empty(t)
}

func TestS14Take(t *testing.T) {
	w := newWeb(t, 1)
	slots := make(chan *inflight.Slot, 1)
	conns := make(chan net.Conn, 1)
	returned := make(chan bool, 1)
	h := w.behind(func(w http.ResponseWriter, r *http.Request) {
		slots <- inflight.Take(r.Context())
		echoAndLeave(conns)(w, r)
	})
	s := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		returned <- true
	}))
	t.Run("released by the taker only", func(t *testing.T) {
		p := dialUpgrade(t, s)
		receive(t, returned)
		p.echoes("hello")
		require.NoError(t, p.Close())
		require.NoError(t, receive(t, conns).Close())
		w.is(t, 1)
		receive(t, slots).Release()
		w.empty(t)
	})
	t.Run("Release does not close", func(t *testing.T) {
		p := dialUpgrade(t, s)
		receive(t, returned)
		receive(t, slots).Release()
		w.is(t, 0)
		p.echoes("still there")
		require.NoError(t, p.Close())
		require.NoError(t, receive(t, conns).Close())
		w.empty(t)
	})
	t.Run("Evict closes", func(t *testing.T) {
		p := dialUpgrade(t, s)
		receive(t, returned)
		receive(t, slots)
		require.True(t, w.Evict(w.Slots(1)[0].ID))
		p.hangsUp()
		receive(t, conns)
		w.empty(t)
	})
}

func TestS22HijackedNested(t *testing.T) {
	outer, inner := newWeb(t, 1), newWeb(t, 1)
	conns := make(chan net.Conn, 1)
	s := newSite(t, "h1", outer.behind(inner.behind(echoAndLeave(conns)).ServeHTTP))
	p := dialUpgrade(t, s)
	p.echoes("hello")
	outer.is(t, 1)
	inner.is(t, 1)
	require.NoError(t, p.Close())
	require.NoError(t, receive(t, conns).Close())
	outer.becomes(t, 0)
	inner.becomes(t, 0)
	outer.empty(t)
	inner.empty(t)
}

func TestS23Shutdown(t *testing.T) {
	w := newWeb(t, 1)
	conns := make(chan net.Conn, 1)
	s := newSite(t, "h1", w.behind(echoAndLeave(conns)))
	p := dialUpgrade(t, s)
	p.echoes("hello")
	require.NoError(t, s.Config.Shutdown(t.Context()), "the server does not wait for it")
	w.is(t, 1)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := w.Shutdown(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "1 slot left")

	done := make(chan error, 1)
	go func() { done <- w.Shutdown(context.Background()) }()
	require.NoError(t, p.Close())
	require.NoError(t, receive(t, conns).Close())
	require.NoError(t, receive(t, done))
	w.empty(t)
}
