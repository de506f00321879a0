package inflight_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestS5NotReleasedWhenTheClientGoes(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			gone, leave := make(chan struct{}), make(chan struct{})
			s := newSite(t, protocol, w.behind(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				close(gone)
				<-leave
			}))
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
				_, err := s.client.Do(req)
				failed <- err
			}()
			w.becomes(t, 1)
			cancel()
			require.ErrorIs(t, receive(t, failed), context.Canceled)
			receive(t, gone)
			w.is(t, 1)
			close(leave)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

// errPanic is compared by identity: the very same value must go on.
var errPanic = errors.New("a bug")

func TestS6Panic(t *testing.T) {
	for name, value := range map[string]any{"value": errPanic, "abort": http.ErrAbortHandler} {
		t.Run("err-panic "+name, func(t *testing.T) {
			w := newWeb(t, 1)
			h := w.behind(func(http.ResponseWriter, *http.Request) { panic(value) })
			var got any
			func() {
				defer func() { got = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			}()
			require.Same(t, value, got)
			w.empty(t)

			for _, protocol := range protocols {
				t.Run(protocol, func(t *testing.T) {
					s := newSite(t, protocol, h)
					res, err := s.client.Get(s.URL)
					if err == nil {
						require.NoError(t, res.Body.Close())
					}
					require.Error(t, err)
					w.becomes(t, 0)
				})
			}
			w.empty(t)
		})
	}
}

func TestS6Goexit(t *testing.T) {
	w := newWeb(t, 1)
	h := w.behind(func(http.ResponseWriter, *http.Request) { runtime.Goexit() })
	went := make(chan bool, 1)
	go func() {
		defer close(went)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		went <- true
	}()
	require.False(t, receive(t, went), "Goexit must go on")
	w.is(t, 0)
	w.empty(t)
}

func TestS8Take(t *testing.T) {
	w := newWeb(t, 1)
	var second *inflight.Slot
	taken := make(chan *inflight.Slot, 1)
	s := newSite(t, "h1", w.behind(func(_ http.ResponseWriter, r *http.Request) {
		slot := inflight.Take(r.Context())
		second = inflight.Take(r.Context())
		taken <- slot
	}))
	status, _ := s.get(t, "/")
	require.Equal(t, http.StatusOK, status)
	slot := receive(t, taken)
	require.NotNil(t, slot)
	require.Nil(t, second)

	s.Close() // so that the middleware has certainly returned
	w.is(t, 1)
	slot.Release()
	w.is(t, 0)
	w.empty(t)
}

func TestS8TakeTooLate(t *testing.T) {
	w := newWeb(t, 1)
	var ctx context.Context
	w.behind(func(_ http.ResponseWriter, r *http.Request) {
		ctx = r.Context() //nolint:fatcontext // to look at it from outside
	}).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.NotNil(t, inflight.FromContext(ctx))
	require.Nil(t, inflight.Take(ctx), "the handler has returned and the slot is released")
	require.ErrorIs(t, context.Cause(ctx), inflight.ErrReleased)
}

// A watchedWriter counts what is done to it.
type watchedWriter struct{ touched int }

func (w *watchedWriter) Header() http.Header         { w.touched++; return http.Header{} }
func (w *watchedWriter) Write(p []byte) (int, error) { w.touched++; return len(p), nil }
func (w *watchedWriter) WriteHeader(int)             { w.touched++ }
func (w *watchedWriter) Flush()                      { w.touched++ }

func TestS9WriterLeftAlone(t *testing.T) {
	w := newWeb(t, 1)
	watched := &watchedWriter{}
	h := w.behind(func(http.ResponseWriter, *http.Request) {})
	h.ServeHTTP(watched, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	h.ServeHTTP(hijackable{ResponseWriter: watched}, upgradeRequest())
	require.Zero(t, watched.touched)
}

func TestS10SameWriter(t *testing.T) {
	w := newWeb(t, 1)
	var got http.ResponseWriter
	h := w.behind(func(w http.ResponseWriter, _ *http.Request) { got = w })

	plain := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	noToken := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	noToken.Header.Set("Upgrade", "websocket")
	noToken.Header.Set("Connection", "keep-alive, not-upgrade")
	noProtocol := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	noProtocol.Header.Set("Connection", "Upgrade")
	for name, r := range map[string]*http.Request{"plain": plain, "no token": noToken, "no protocol": noProtocol} {
		t.Run(name, func(t *testing.T) {
			want := &hijackable{ResponseWriter: httptest.NewRecorder()}
			h.ServeHTTP(want, r)
			require.Same(t, want, got)
		})
	}
	t.Run("cannot hijack", func(t *testing.T) {
		want := httptest.NewRecorder()
		h.ServeHTTP(want, upgradeRequest())
		require.Same(t, want, got)
	})
}

func TestS18Skip(t *testing.T) {
	w := newWeb(t, 1)
	mw := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{
		Key:  asWebKey,
		Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	})
	var slot *inflight.Slot
	s := newSite(t, "h1", mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		slot = inflight.FromContext(r.Context())
	})))
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)

	t.Run("probe-full", func(t *testing.T) {
		status, _ := s.get(t, "/healthz")
		require.Equal(t, http.StatusOK, status)
		require.Nil(t, slot)
		status, _ = s.get(t, "/")
		require.Equal(t, http.StatusTooManyRequests, status)
	})
	held.Release()
	require.Equal(t, uint64(1), w.Stats().Admitted, "what is skipped is not counted")
}

func TestS22Nested(t *testing.T) {
	outer, inner := newWeb(t, 1), newWeb(t, 1)
	other := inflight.Key{Org: "acme", Model: "other"}
	t.Run("nested-keys", func(t *testing.T) {
		ofOther := inflight.Middleware(outer.Registry, inflight.MiddlewareConfig{
			Key: func(*http.Request) (inflight.Key, error) { return other, nil },
		})
		handler := func(_ http.ResponseWriter, r *http.Request) {
			outer.is(t, 1)
			require.Equal(t, 1, outer.InUse(other))
			inner.is(t, 1)
			require.Equal(t, webKey, inflight.FromContext(r.Context()).Key(), "the innermost")
		}
		h := outer.behind(ofOther(inner.behind(handler)).ServeHTTP)
		for range 3 {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			require.Equal(t, http.StatusOK, rec.Code)
		}
		outer.empty(t)
		inner.empty(t)
		require.Equal(t, uint64(6), outer.Stats().Admitted)
	})
	t.Run("taken", func(t *testing.T) {
		var slot *inflight.Slot
		handler := func(_ http.ResponseWriter, r *http.Request) { slot = inflight.Take(r.Context()) }
		outer.behind(inner.behind(handler).ServeHTTP).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		outer.is(t, 0)
		inner.is(t, 1)
		slot.Release()
		inner.empty(t)
	})
}

func TestMiddlewarePanicsAtSetUp(t *testing.T) {
	w := newWeb(t, 1)
	require.PanicsWithValue(t, "inflight: Middleware: MiddlewareConfig.Key is nil", func() {
		inflight.Middleware(w.Registry, inflight.MiddlewareConfig{})
	})
	require.PanicsWithValue(t, "inflight: Middleware: Acquirer is nil", func() {
		inflight.Middleware(nil, inflight.MiddlewareConfig{Key: asWebKey})
	})
}
