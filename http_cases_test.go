package inflight_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Faults that concurrency limits have had, each under the name by which CONTRIBUTING knows it.

func TestCasesGivenBackTooEarly(t *testing.T) {
	t.Run("early-many-streams", earlyManyStreams)
	t.Run("early-every-shape", earlyEveryShape)
}

func earlyManyStreams(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 8)
			ended := make(chan struct{})
			s := newSite(t, protocol, w.behind(streaming(ended)))
			statuses := map[int]int{}
			for range 50 {
				res, err := s.client.Get(s.URL) // returns once the stream was flushed
				require.NoError(t, err)
				closeLater(t, res.Body)
				statuses[res.StatusCode]++
			}
			require.Equal(t, map[int]int{http.StatusOK: 8, http.StatusTooManyRequests: 42}, statuses)
			w.is(t, 8)
			close(ended)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

func earlyEveryShape(t *testing.T) {
	w := newWeb(t, 1)
	inside, leave := make(chan bool), make(chan bool)
	pause := func() { inside <- true; <-leave }
	upstream := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		pause()
	}))
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	shapes := map[string]http.Handler{
		"/buffered": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "part")
			pause()
		}),
		"/sse": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			pause()
		}),
		"/error": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "part", http.StatusInternalServerError)
			pause()
		}),
		"/passthrough": &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: upstream.transport,
		},
	}
	s := newSite(t, "h1", w.behind(func(w http.ResponseWriter, r *http.Request) {
		shapes[r.URL.Path].ServeHTTP(w, r)
	}))
	for path := range shapes {
		t.Run(path, func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				res, err := s.client.Get(s.URL + path)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
				done <- err
			}()
			receive(t, inside)
			w.is(t, 1)
			leave <- true
			require.NoError(t, receive(t, done))
			w.becomes(t, 0)
		})
	}
	w.empty(t)
}

func TestCasesLostOnAbort(t *testing.T) {
	t.Run("abort-mid-sse", abortMidSse)
	t.Run("abort-before-header", abortBeforeHeader)
	t.Run("abort-release-ctx", abortReleaseCtx)
}

func abortMidSse(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/sse" {
					streaming(nil)(w, r)
				}
			}))
			res, err := s.client.Get(s.URL + "/sse")
			require.NoError(t, err)
			_, err = res.Body.Read(make([]byte, 1))
			require.NoError(t, err)
			w.is(t, 1)
			require.NoError(t, res.Body.Close())
			w.becomes(t, 0)
			status, _ := s.get(t, "/")
			require.Equal(t, http.StatusOK, status)
		})
	}
}

func abortBeforeHeader(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			server, client := newWeb(t, 1), newWeb(t, 1)
			s := newSite(t, protocol, server.behind(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				panic(http.ErrAbortHandler) // a proper answer might still reach the client over TLS
			}))
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			req, tr := newRequest(ctx, t, s.URL), client.over(s.transport)
			go func() {
				_, err := tr.RoundTrip(req)
				failed <- err
			}()
			server.becomes(t, 1)
			client.is(t, 1)
			cancel()
			require.Error(t, receive(t, failed))
			client.empty(t)
			server.becomes(t, 0)
			server.empty(t)
		})
	}
}

func abortReleaseCtx(t *testing.T) {
	w := newWeb(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	w.behind(func(http.ResponseWriter, *http.Request) { cancel() }).
		ServeHTTP(httptest.NewRecorder(), newRequest(ctx, t, "/"))
	w.empty(t)
	require.Equal(t, uint64(1), w.Stats().Released)
}

func TestCasesLostOnErrorPaths(t *testing.T) {
	t.Run("err-bad-request", errBadRequest)
	t.Run("err-abort-proxy", errAbortProxy)
	t.Run("err-context-replaced", errContextReplaced)
	t.Run("err-two-stage", errTwoStage)
}

//slotvet:ignore the few are held to the end of the test
func errBadRequest(t *testing.T) {
	w := newWeb(t, 64)
	s := newSite(t, "h1", w.behind(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }))
	for range 64 {
		status, _ := s.get(t, "/")
		require.Equal(t, http.StatusBadRequest, status)
	}
	w.becomes(t, 0)
	for range 64 {
		slot, err := w.TryAcquire(webKey)
		require.NoError(t, err)
		defer slot.Release()
	}
}

func errAbortProxy(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			aborted := make(chan error, 1)
			upstream := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { aborted <- r.Context().Err() }()
				streaming(nil)(w, r)
			}))
			target, err := url.Parse(upstream.URL)
			require.NoError(t, err)
			proxy := &httputil.ReverseProxy{
				Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
				Transport: upstream.transport,
			}
			s := newSite(t, protocol, w.behind(proxy.ServeHTTP))
			res, err := s.client.Get(s.URL)
			require.NoError(t, err)
			_, err = res.Body.Read(make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.ErrorIs(t, receive(t, aborted), context.Canceled)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

func errContextReplaced(t *testing.T) {
	w := newWeb(t, 1)
	forgetful := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.Background())) //nolint:contextcheck // as the fault has it
		})
	}
	w.behind(forgetful(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		require.Nil(t, inflight.FromContext(r.Context()))
		w.is(t, 1)
	})).ServeHTTP).ServeHTTP(httptest.NewRecorder(), newRequest(t.Context(), t, "/"))
	w.empty(t)
	require.Equal(t, uint64(1), w.Stats().Released)
}

func errTwoStage(t *testing.T) {
	first, second := newWeb(t, 1), newWeb(t, 1)
	held, err := second.TryAcquire(webKey)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	statuses := make(chan int, 1)
	h := first.behind(inflight.Middleware(second.Registry, inflight.MiddlewareConfig{Key: asWebKey, Wait: time.Hour})(
		http.NotFoundHandler()).ServeHTTP)
	req := newRequest(ctx, t, "/")
	go func() {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		statuses <- rec.Code
	}()
	eventually(t, func() bool { return second.Stats().Waiters == 1 })
	first.is(t, 1)
	cancel()
	require.Equal(t, 499, receive(t, statuses))
	first.empty(t)
	held.Release()
	second.empty(t)
}
