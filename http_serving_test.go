package inflight_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestCasesServing(t *testing.T) {
	t.Run("long-and-short", func(t *testing.T) {
		w := newWeb(t, 1)
		events := make(chan string)
		s := newSite(t, "h1", inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: byPath})(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/short" {
					return
				}
				for event := range events {
					_, _ = io.WriteString(w, event)
					_ = http.NewResponseController(w).Flush()
				}
			})))
		type result struct {
			res *http.Response
			err error
		}
		opened := make(chan result, 1)
		go func() {
			res, err := s.client.Get(s.URL + "/long")
			opened <- result{res, err}
		}()
		events <- "0"
		stream := receive(t, opened)
		require.NoError(t, stream.err)
		closeLater(t, stream.res.Body)
		for i := range 20 {
			status, _ := s.get(t, "/short")
			require.Equal(t, http.StatusOK, status)
			eventually(t, func() bool { return w.InUse(inflight.Key{Org: "acme", Model: "/short"}) == 0 })
			events <- strconv.Itoa(i % 10)
		}
		close(events)
		text, err := io.ReadAll(stream.res.Body)
		require.NoError(t, err)
		require.Equal(t, "0"+strings.Repeat("0123456789", 2), string(text))
	})
	t.Run("shutdown-stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWeb(t, 1)
			leave := make(chan struct{})
			go w.behind(func(http.ResponseWriter, *http.Request) { <-leave }).
				ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := w.Shutdown(ctx)
			require.Equal(t, time.Second, time.Since(start))
			require.ErrorContains(t, err, "1 slot left")
			close(leave)
			require.NoError(t, w.Shutdown(t.Context()))
			w.empty(t)
		})
	})
}

// A counter with a time to live of ten minutes would have forgotten it.
func TestStreamOfFifteenMinutesStillCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := inflight.New(inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		require.NoError(t, err)
		closeLater(t, w)
		h := inflight.Middleware(w, inflight.MiddlewareConfig{Key: asWebKey})(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				for range 15 * 60 {
					time.Sleep(time.Second)
					_, _ = io.WriteString(w, "data: tick\n\n")
				}
			}))
		serve := func() *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			return rec
		}
		stream := make(chan *httptest.ResponseRecorder, 1)
		go func() { stream <- serve() }()
		for range 14 { // through as many sweeps
			time.Sleep(time.Minute)
			require.Equal(t, 1, w.InUse(webKey))
			require.Equal(t, http.StatusTooManyRequests, serve().Code)
		}
		require.Equal(t, http.StatusOK, (<-stream).Code)
		require.Zero(t, w.InUse(webKey))
	})
}
