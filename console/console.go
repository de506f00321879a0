package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/inflight-go/inflight"
)

// A Config says what a console shows and allows. The zero Config is a console that is read only.
type Config struct {
	// Admin lets whoever reaches the console cancel and evict slots, and change the limits of Table. See the package
	// comment for what must guard it.
	Admin bool

	// Table is shown and, with Admin, changed. Its rules need not be all that decides the registry's limits. May be nil.
	Table *inflight.LimitTable

	// User names who makes a request, for the log of actions: the operator that a proxy or a middleware has
	// authenticated, say. It gets the request as it came to the console and must leave its body unread. It is called by
	// many goroutines at once, before the action. Nil means the remote address.
	User func(*http.Request) string

	// Logger gets each action that was asked for, done or refused: who, what and the outcome. Nil means slog.Default().
	Logger *slog.Logger

	// Interval is the time between the updates of an open page. 0 and negative mean 1 s. Nothing is done while no page is
	// open.
	Interval time.Duration
}

// maxShown is how many holders, waiters or keys are listed unless a request asks for another number.
const maxShown = 500

// Handler returns a console over the registry. It may be mounted under any prefix, with http.StripPrefix or without,
// and answers GET of
//
//	(the prefix itself)  the page; text if the client does not take HTML, or for ?format=text
//	api/...              JSON, see README.md
//
// and, with Config.Admin, what README.md says of actions. It panics if there is no registry. What it returns is safe for
// concurrent use.
//
// It sets headers that keep other sites from framing, reading or scripting it, and no cache from keeping what it shows.
// An open page is a request that lasts. It ends when the server is shut down, so Server.Shutdown does not wait for it.
// The exception is a page's request that comes to the console after Shutdown has begun, if it is the first that the
// console gets from that server: nothing tells of a shutdown that has begun already.
func Handler(reg *inflight.Registry, cfg Config) http.Handler {
	if reg == nil {
		panic("console: Handler: no registry")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	if cfg.User == nil {
		cfg.User = func(r *http.Request) string { return r.RemoteAddr }
	}
	h := &handler{
		registry:  reg,
		instance:  rand.Text()[:8],
		cfg:       cfg,
		shutdowns: shutdowns{of: make(map[*http.Server]<-chan struct{})},
		page:      newPage(),
	}
	h.feed = newFeed(reg, cfg.Interval, h.encodeState)
	h.mux = h.routes()
	return h
}

type handler struct {
	registry    *inflight.Registry
	instance    string // tells it from the same console in another process, whose slots have the same numbers
	cfg         Config
	feed        *feed
	shutdowns   shutdowns
	page        page
	crossOrigin http.CrossOriginProtection
	mux         *http.ServeMux
}

// routes has the paths below the mount point.
func (h *handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for path, methods := range map[string]map[string]http.HandlerFunc{
		"/{$}":                   {http.MethodGet: h.root},
		"/api/overview":          {http.MethodGet: answer(h.overview)},
		"/api/history":           {http.MethodGet: answer(h.history)},
		"/api/keys":              {http.MethodGet: answer(h.keys)},
		"/api/waiters":           {http.MethodGet: answer(h.waiters)},
		"/api/slots":             {http.MethodGet: answer(h.slots)},
		"/api/slots/{id}":        {http.MethodGet: answer(h.slot)},
		"/api/slots/{id}/cancel": {http.MethodPost: h.action("cancel slot", h.cancel)},
		"/api/slots/{id}/evict":  {http.MethodPost: h.action("evict slot", h.evict)},
		"/api/limits": {
			http.MethodGet:    answer(h.limits),
			http.MethodPut:    h.action("set limits", h.setLimits),
			http.MethodDelete: h.action("delete limits", h.deleteLimits),
		},
		"/api/state":  {http.MethodGet: answer(h.state)},
		"/api/events": {http.MethodGet: h.events},
	} {
		for method, f := range methods {
			mux.HandleFunc(method+" "+path, f)
		}
		mux.HandleFunc(path, notAllowed(methods))
	}
	mux.HandleFunc("/", notFound)
	return mux
}

// ServeHTTP answers a request wherever the console is mounted.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", h.page.policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")

	if to := withSlash(r); to != "" {
		header.Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	h.shutdowns.channel(r) // the page comes before its stream, so that a shutdown between them is noticed
	inner, url := r.WithContext(context.WithValue(r.Context(), asItCame{}, r)), *r.URL
	url.Path, url.RawPath = "/"+below(r), ""
	inner.URL = &url
	if cleaned(url.Path) {
		h.mux.ServeHTTP(w, inner)
	} else {
		notFound(w, r)
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotFound, "The console has nothing here. The path of its page ends in a slash.")
}

// asItCame is the key in a request's context for the request before its path was changed, with the pattern and the path
// values of what is around the console.
type asItCame struct{}

// who names who makes the request, also if User knows no name.
func (h *handler) who(r *http.Request) string {
	came, _ := r.Context().Value(asItCame{}).(*http.Request)
	return cmp.Or(h.cfg.User(came), "unknown")
}
