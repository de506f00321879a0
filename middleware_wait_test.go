package inflight_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestS21GoneWhileWaiting(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Run("abort-while-waiting", func(t *testing.T) {
				w := newWeb(t, 1)
				held, err := w.TryAcquire(webKey)
				require.NoError(t, err)
				refused := make(chan error, 1)
				s := newSite(t, protocol, inflight.Middleware(w.Registry, inflight.MiddlewareConfig{
					Key: asWebKey, Wait: time.Hour,
					Reject: func(_ http.ResponseWriter, _ *http.Request, err error) { refused <- err },
				})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })))

				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan bool)
				go func() {
					defer close(gone)
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
					if res, err := s.client.Do(req); err == nil {
						_ = res.Body.Close() // over TLS the answer may just get through
					}
				}()
				eventually(t, func() bool { return w.Stats().Waiters == 1 })
				cancel()
				receive(t, gone)
				require.Equal(t, context.Canceled, receive(t, refused))
				require.Zero(t, w.Stats().Waiters)
				held.Release()
				w.empty(t)
			})
		})
	}
}

func TestS21WaitIsTheBound(t *testing.T) {
	w := newWeb(t, 1)
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	defer held.Release()
	h := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: asWebKey, Wait: 100 * time.Millisecond})
	s := newSite(t, "h1", h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })))
	p := dialSite(t, s)
	_, err = io.WriteString(p, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	require.NoError(t, err)
	eventually(t, func() bool { return w.Stats().Waiters == 1 })
	require.NoError(t, p.Close())
	eventually(t, func() bool { return w.Stats().Waiters == 0 })
	require.Equal(t, uint64(1), w.Stats().Rejected[inflight.ScopeKey].TimedOut, "net/http cannot see the client go")
}

func TestS21Admitted(t *testing.T) {
	w := newWeb(t, 1)
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	h := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: asWebKey, Wait: time.Hour})
	s := newSite(t, "h1", h(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })))
	statuses := make(chan int, 1)
	go func() {
		res, err := s.client.Get(s.URL)
		if err == nil {
			_ = res.Body.Close()
			statuses <- res.StatusCode
		}
	}()
	eventually(t, func() bool { return w.Stats().Waiters == 1 })
	held.Release()
	require.Equal(t, http.StatusAccepted, receive(t, statuses))
	w.becomes(t, 0)
	w.empty(t)
}
