package bench

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/inflight-go/inflight"
)

// pause lets the others run while the slot is held, so that they come to wait for it.
func pause() { runtime.Gosched() }

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header { return d.header }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (discard) WriteHeader(int) {}

func limited(reg *inflight.Registry, next http.Handler) http.Handler {
	return inflight.Middleware(reg, inflight.MiddlewareConfig{
		Key:    func(*http.Request) (inflight.Key, error) { return key, nil },
		Reject: inflight.RejectOpenAI,
	})(next)
}

// BenchmarkHandler is what each middleware adds to a handler that does nothing.
func BenchmarkHandler(b *testing.B) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	run := func(h http.Handler) func(b *testing.B) {
		return func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/chat/completions", nil)
			w := discard{http.Header{}}
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		}
	}
	b.Run("bare", run(next))
	b.Run("inflight", run(limited(newRegistry(b, inflight.Limits{}), next)))
	b.Run("chi-Throttle", run(middleware.Throttle(64)(next)))
	b.Run("failsafe-bulkhead", run(failsafehttp.NewHandler(next, bulkhead.New[*http.Response](64))))
}

// BenchmarkRefusal is what it costs to say no.
func BenchmarkRefusal(b *testing.B) {
	entered, leave := make(chan struct{}), make(chan struct{})
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	run := func(h http.Handler) func(b *testing.B) {
		return func(b *testing.B) {
			b.Helper()
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/chat/completions", nil)
			done := make(chan struct{})
			go func() {
				h.ServeHTTP(discard{http.Header{}}, r)
				close(done)
			}()
			<-entered
			b.ReportAllocs()
			w := discard{http.Header{}}
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
			leave <- struct{}{}
			<-done
		}
	}
	b.Run("inflight", run(limited(newRegistry(b, inflight.Limits{Key: 1}), next)))
	b.Run("chi-Throttle", run(middleware.Throttle(1)(next)))
	b.Run("failsafe-bulkhead", run(failsafehttp.NewHandler(next, bulkhead.New[*http.Response](1))))
}

// BenchmarkRoundTrip is a request over loopback, with and without a slot held to the end of its body.
func BenchmarkRoundTrip(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1024))
	}))
	b.Cleanup(server.Close)
	run := func(rt http.RoundTripper) func(b *testing.B) {
		return func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			client := &http.Client{Transport: rt}
			buf := make([]byte, 4096)
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL, nil)
				if err != nil {
					b.Fatal(err)
				}
				resp, err := client.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = resp.Body.Read(buf)
				}
				_ = resp.Body.Close()
			}
		}
	}
	b.Run("bare", run(&http.Transport{}))
	b.Run("inflight", run(inflight.NewTransport(&http.Transport{}, newRegistry(b, inflight.Limits{}), inflight.TransportConfig{
		Key: func(*http.Request) (inflight.Key, error) { return key, nil },
	})))
}
