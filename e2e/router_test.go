package e2e_test

import (
	"bufio"
	"io"
	"iter"
	"net"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
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

// A middleware is what they all have in common.
type middleware = func(http.Handler) http.Handler

// Routers, each with its own recoverer where it has one, serve an app on /hello/{name} and the paths of handlers. If
// there is a middleware it is put inside: on each route, the way the router has it.
var routers = map[string]func(a *app, inside middleware) http.Handler{
	"net/http": func(a *app, inside middleware) http.Handler {
		if inside == nil {
			inside = func(h http.Handler) http.Handler { return h }
		}
		mux := http.NewServeMux()
		mux.Handle("GET /hello/{name}", inside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hello(w, r.PathValue("name"))
		})))
		for path, h := range a.handlers() {
			mux.Handle("GET "+path, inside(h))
		}
		return mux
	},
	"chi": func(a *app, inside middleware) http.Handler {
		root := chi.NewRouter()
		root.Use(quietChi, chimiddleware.Recoverer)
		var r chi.Router = root
		if inside != nil {
			r = root.With(inside)
		}
		r.Get("/hello/{name}", func(w http.ResponseWriter, r *http.Request) { hello(w, chi.URLParam(r, "name")) })
		for path, h := range a.handlers() {
			r.Get(path, h)
		}
		return root
	},
	"gin": func(a *app, inside middleware) http.Handler {
		e := newGin()
		var before []gin.HandlerFunc
		if inside != nil {
			before = append(before, ginMiddleware(inside))
		}
		routes := e.Group("/", before...)
		routes.GET("/hello/:name", func(c *gin.Context) { hello(c.Writer, c.Param("name")) })
		for path, h := range a.handlers() {
			routes.GET(path, gin.WrapF(h))
		}
		return e
	},
	"gin.WrapH": func(a *app, inside middleware) http.Handler {
		if inside == nil {
			inside = func(h http.Handler) http.Handler { return h }
		}
		e := newGin()
		e.GET("/hello/:name", gin.WrapH(inside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hello(w, path.Base(r.URL.Path))
		}))))
		for path, h := range a.handlers() {
			e.GET(path, gin.WrapH(inside(h)))
		}
		return e
	},
	"echo": func(a *app, inside middleware) http.Handler {
		e := echo.New()
		e.Logger.SetOutput(io.Discard)
		e.Use(echomiddleware.Recover())
		var before []echo.MiddlewareFunc
		if inside != nil {
			before = append(before, echo.WrapMiddleware(inside))
		}
		e.GET("/hello/:name", func(c echo.Context) error {
			hello(c.Response(), c.Param("name"))
			return nil
		}, before...)
		for path, h := range a.handlers() {
			e.GET(path, echo.WrapHandler(h), before...)
		}
		return e
	},
}

func newGin() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.RecoveryWithWriter(io.Discard))
	return e
}

// ginMiddleware puts a middleware of net/http into a chain of gin, which has no adapter of its own for it. What the
// middleware puts in the place of the writer is used for Hijack: it may hold on to the connection.
func ginMiddleware(m middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		reached := false
		m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached = true
			c.Request = r
			if h, ok := w.(http.Hijacker); ok {
				c.Writer = ginWriter{c.Writer, h}
			}
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !reached {
			c.Abort()
		}
	}
}

type ginWriter struct {
	gin.ResponseWriter

	hijacker http.Hijacker
}

func (w ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijacker.Hijack() }

// quietChi keeps chi's recoverer from printing stacks.
func quietChi(next http.Handler) http.Handler {
	return chimiddleware.RequestLogger(quietLog{})(next)
}

type quietLog struct{}

func (l quietLog) NewLogEntry(*http.Request) chimiddleware.LogEntry { return l }

func (quietLog) Write(int, int, http.Header, time.Duration, any) {}
func (quietLog) Panic(any, []byte)                               {}

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
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/panic", http.NoBody)
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
