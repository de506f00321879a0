package e2e_test

import (
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// An app is what is served behind each router.
type app struct {
	goOn chan struct{} // lets a stream go on
}

func (a *app) handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/sse":   a.sse,
		"/panic": func(http.ResponseWriter, *http.Request) { panic("boom") },
		"/abort": func(w http.ResponseWriter, _ *http.Request) {
			event(w, "1")
			panic(http.ErrAbortHandler)
		},
		"/ws": wsServers["gorilla returns"],
	}
}

// sse sends one event, waits, and sends another.
func (a *app) sse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	event(w, "1")
	select {
	case <-a.goOn:
		event(w, "2")
	case <-r.Context().Done():
	}
}

// event asserts http.Flusher directly, as handlers did before there was http.ResponseController, and many still do.
func event(w http.ResponseWriter, data string) {
	_, _ = io.WriteString(w, "data: "+data+"\n\n")
	flusher, ok := w.(http.Flusher)
	if !ok {
		panic("no http.Flusher")
	}
	flusher.Flush()
}

func hello(w http.ResponseWriter, name string) { _, _ = io.WriteString(w, "Hello "+name) }

// A routed is a router with the middleware at one of its places, served.
type routed struct {
	app

	reg    *inflight.Registry
	url    string
	site   wsSite
	client *http.Client
}

// onEach gives each router with the middleware at each place, on each of the wires, as a function that opens it. The
// limit is 1.
func onEach(wires ...wire) iter.Seq2[string, func(*testing.T) *routed] {
	return func(yield func(string, func(*testing.T) *routed) bool) {
		for name, build := range routers {
			for _, over := range wires {
				outside := func(a *app, mw middleware) http.Handler { return mw(build(a, nil)) }
				where := name + "/" + string(over)
				if !yield(where+"/outside", openRouted(outside, over)) || !yield(where+"/inside", openRouted(build, over)) {
					return
				}
			}
		}
	}
}

func openRouted(build func(*app, middleware) http.Handler, over wire) func(*testing.T) *routed {
	return func(t *testing.T) *routed {
		t.Helper()
		r := &routed{reg: newRegistry(t, oneSlot)}
		r.goOn = make(chan struct{})
		s := serve(t, over, build(&r.app, inflight.Middleware(r.reg, inflight.MiddlewareConfig{Key: always(acme)})))
		r.url, r.client, r.site = s.URL, s.Client(), wsSiteAt(s, r.reg)
		return r
	}
}

// works checks that a request is answered, several times though the limit is 1.
func (r *routed) works(t *testing.T) {
	t.Helper()
	for range 3 {
		uses(t, r.reg, 0)
		resp := get(t, r.client, r.url+"/hello/Ada")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "Hello Ada", text(t, resp))
	}
	uses(t, r.reg, 0)
}

// stream begins to read a stream, to the end of its first event.
func (r *routed) stream(t *testing.T) *http.Response {
	t.Helper()
	resp := get(t, r.client, r.url+"/sse")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	first := make([]byte, len("data: 1\n\n"))
	_, err := io.ReadFull(resp.Body, first)
	require.NoError(t, err)
	require.Equal(t, "data: 1\n\n", string(first))
	return resp
}

func TestRouterStreams(t *testing.T) {
	for name, open := range onEach(plain, tls1, tls2) {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			r.works(t)
			stream := r.stream(t)
			require.Equal(t, 1, r.reg.InUse(acme))
			refused := get(t, r.client, r.url+"/hello/Ada")
			require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
			require.Equal(t, "1", refused.Header.Get("Retry-After"))
			require.Equal(t, "application/problem+json", refused.Header.Get("Content-Type"))
			require.NotContains(t, text(t, refused), "Hello", "the chain ends at the middleware")
			require.Equal(t, 1, r.reg.InUse(acme))
			r.goOn <- struct{}{}
			require.Equal(t, "data: 2\n\n", text(t, stream))
			uses(t, r.reg, 0)

			stream = r.stream(t)
			require.Equal(t, 1, r.reg.InUse(acme))
			require.NoError(t, stream.Body.Close())
			r.works(t)
		})
	}
}

func TestRouterPanics(t *testing.T) {
	for name, open := range onEach(plain, tls2) {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			recovers := !strings.HasPrefix(t.Name(), "TestRouterPanics/net/http")
			for range 3 { // the limit is 1
				req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, r.url+"/panic", http.NoBody)
				require.NoError(t, err)
				resp, err := r.client.Do(req)
				if recovers {
					require.NoError(t, err)
					require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
				} else {
					require.Error(t, err, "net/http cuts the connection")
				}
				uses(t, r.reg, 0)

				aborted := get(t, r.client, r.url+"/abort")
				_, err = io.ReadAll(aborted.Body)
				if !strings.HasPrefix(t.Name(), "TestRouterPanics/gin") { // whose recoverer takes this for its own
					require.Error(t, err, "what was aborted does not look complete")
				}
				uses(t, r.reg, 0)
			}
			r.works(t)
		})
	}
}

func TestRouterWebSocket(t *testing.T) {
	for name, open := range onEach(plain, tls1) {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			r.site.url += "/ws"
			for name, ending := range wsEndings {
				c, _, err := wsClients["coder"](t, r.site.url, r.site.roots)
				require.NoError(t, err, name)
				echoes(t, c)
				require.Equal(t, 1, r.reg.InUse(acme), "the handler has returned, the connection is open")
				ending.end(t, c, r.reg)
				r.works(t)
			}
		})
	}
}

// What is outside the middleware learns the route that a mux behind it chose.
func TestRouterPattern(t *testing.T) {
	reg := newRegistry(t, oneSlot)
	mux := routers["net/http"](&app{}, nil)
	limited := inflight.Middleware(reg, inflight.MiddlewareConfig{Key: always(acme)})(mux)
	pattern := make(chan string, 1)
	s := serve(t, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(w, r)
		pattern <- r.Pattern
	}))
	require.Equal(t, "Hello Ada", text(t, get(t, s.Client(), s.URL+"/hello/Ada")))
	require.Equal(t, "GET /hello/{name}", <-pattern)
}
