package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/inflight-go/inflight"
)

const (
	bare = "bare"
	chi  = "chi Throttle"
)

// middlewares limit a handler.
var middlewares = []struct {
	name string
	buys buys
	wrap func(next http.Handler, limit int) http.Handler
}{
	{name: bare, wrap: func(next http.Handler, _ int) http.Handler { return next }},
	{name: "inflight", buys: buys{holder: yes, double: yes, body: yes}, wrap: func(next http.Handler, limit int) http.Handler {
		return inflight.Middleware(newRegistry(inflight.Limits{Key: limit}), inflight.MiddlewareConfig{
			Key:    func(*http.Request) (inflight.Key, error) { return key, nil },
			Reject: inflight.RejectOpenAI,
		})(next)
	}},
	{name: chi, buys: buys{holder: no, body: no}, wrap: func(next http.Handler, limit int) http.Handler {
		return middleware.Throttle(limit)(next)
	}},
	{name: "failsafe-go bulkhead", buys: buys{holder: no, body: no}, wrap: func(next http.Handler, limit int) http.Handler {
		return failsafehttp.NewHandler(next, bulkhead.New[*http.Response](uint(limit)))
	}},
}

// transports limit a client.
var transports = []struct {
	name string
	buys buys
	wrap func(base http.RoundTripper, limit int) http.RoundTripper
}{
	{name: bare, wrap: func(base http.RoundTripper, _ int) http.RoundTripper { return base }},
	{name: "inflight", buys: buys{holder: yes, double: yes, body: yes}, wrap: func(base http.RoundTripper, limit int) http.RoundTripper {
		return inflight.NewTransport(base, newRegistry(inflight.Limits{Key: limit}), inflight.TransportConfig{
			Key: func(*http.Request) (inflight.Key, error) { return key, nil },
		})
	}},
	{name: "failsafe-go bulkhead", buys: buys{holder: no, body: no}, wrap: func(base http.RoundTripper, limit int) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, bulkhead.New[*http.Response](uint(limit)))
	}},
}

func httpGroups() []group {
	handle := group{name: "HTTP handler that does nothing", base: chi}
	refuse := group{name: "HTTP request refused", base: chi}
	for _, m := range middlewares {
		handle.rows = append(handle.rows, row{name: m.name, buys: m.buys, setup: func() (func(n int), func()) {
			next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
			return serve(m.wrap(next, 64), http.StatusNoContent), func() {}
		}})
		if m.name != bare {
			refuse.rows = append(refuse.rows, row{name: m.name, setup: func() (func(n int), func()) {
				return refusing(func(next http.Handler) http.Handler { return m.wrap(next, 1) })
			}})
		}
	}
	trip := group{name: "HTTP round trip over loopback, 1 KiB", base: bare}
	for _, t := range transports {
		trip.rows = append(trip.rows, row{name: t.name, buys: t.buys, setup: func() (func(n int), func()) {
			return roundTrips(func(base http.RoundTripper) http.RoundTripper { return t.wrap(base, 64) })
		}})
	}
	return []group{handle, refuse, trip}
}

// discard is a ResponseWriter that costs next to nothing.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func request() *http.Request {
	return httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/chat/completions", http.NoBody)
}

// serve has the handler serve requests, each of which it must answer with the status.
func serve(h http.Handler, status int) func(n int) {
	r := request()
	return func(n int) {
		w := &discard{header: http.Header{}}
		for range n {
			clear(w.header)
			h.ServeHTTP(w, r)
			admitted(w.status == status)
		}
	}
}

// refusing fills a limit of one with a request that stays.
func refusing(limited func(http.Handler) http.Handler) (work func(n int), cleanup func()) {
	entered, leave := make(chan struct{}), make(chan struct{})
	h := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}))
	left := make(chan struct{})
	go func() {
		h.ServeHTTP(&discard{header: http.Header{}}, request())
		close(left)
	}()
	<-entered
	return serve(h, http.StatusTooManyRequests), func() {
		close(leave)
		<-left
	}
}

// roundTrips makes requests and reads their responses to the end.
func roundTrips(limited func(http.RoundTripper) http.RoundTripper) (work func(n int), cleanup func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1024))
	}))
	base := &http.Transport{}
	client := &http.Client{Transport: limited(base)}
	return func(n int) {
			for range n {
				r := must(http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil))
				resp, err := client.Do(r)
				admitted(err == nil)
				admitted(must(io.Copy(io.Discard, resp.Body)) == 1024)
				_ = resp.Body.Close()
			}
		}, func() {
			base.CloseIdleConnections()
			server.Close()
		}
}
