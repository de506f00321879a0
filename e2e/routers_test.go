package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
)

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
