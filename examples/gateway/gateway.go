package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/inflight-go/inflight"
)

const (
	chatPath     = "/v1/chat/completions" // OpenAI
	messagesPath = "/v1/messages"         // Anthropic
)

// A gateway admits requests by the limits of their keys and passes them on to a model server.
type gateway struct {
	registry *inflight.Registry
	shared   *sharing             // makes the limits hold over several gateways; may be nil
	table    *inflight.LimitTable // shown and changed in the console; may be nil
	db       *dbLimits            // changed by the admin API; may be nil
	mux      *http.ServeMux
	server   *http.Server
	log      *slog.Logger
}

// newRegistry makes what counts the requests of a gateway.
func newRegistry(limits inflight.LimitFunc, log *slog.Logger) (*inflight.Registry, error) {
	return inflight.New(inflight.Config{
		Name: "gateway", Limits: limits, Logger: log,
		CaptureStack: true, // a microsecond of the seconds that a stream takes, and a leak says where it came from
	})
}

// newGateway makes a gateway, whose limits are those of the registry, and shared if shared is not nil. Wait is how long a
// request waits for its turn, 0 if it is refused at once. Patience is how long a client may take to send its request, and
// to receive each piece of the answer.
func newGateway(
	registry *inflight.Registry, shared *sharing, upstream http.Handler, wait, patience time.Duration, log *slog.Logger,
) *gateway {
	g := &gateway{registry: registry, shared: shared, mux: http.NewServeMux(), log: log}
	g.route(upstream, wait)
	g.server = &http.Server{
		Handler: http.MaxBytesHandler(boundWrites(g.mux, patience), maxBody),
		// ReadTimeout ends with the request's last byte. There is no WriteTimeout, which would cut long streams: boundWrites
		// bounds each write instead.
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       patience,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return g
}

// acquirer is where requests get their slots.
func (g *gateway) acquirer() inflight.Acquirer {
	if g.shared != nil {
		return g.shared.fleet
	}
	return g.registry
}

func (g *gateway) route(upstream http.Handler, wait time.Duration) {
	limited := identified(inflight.Middleware(g.acquirer(), inflight.MiddlewareConfig{
		Key: keyOf, Label: labelOf, Wait: wait, Reject: g.refuse,
	})(g.pinned(upstream)))
	healthy := func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	}

	for _, route := range []struct {
		method, path string
		handler      http.Handler
	}{
		{http.MethodPost, chatPath, limited},
		{http.MethodPost, messagesPath, limited},
		{http.MethodGet, "/v1/models", upstream},                // costs nothing scarce: not limited
		{http.MethodGet, "/healthz", http.HandlerFunc(healthy)}, // must answer when all is full: not limited
	} {
		g.mux.Handle(route.method+" "+route.path, route.handler)
		g.mux.HandleFunc(route.path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", route.method)
			fail(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "Only "+route.method+" is allowed here.")
		})
	}
	g.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, http.StatusNotFound, "unknown_url", "There is nothing at this URL.")
	})
}

// refuse answers a request that was not admitted, in the words of the API that was called.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	g.log.Debug("refused", "path", r.URL.Path, "err", err)
	switch {
	case errors.Is(err, errAPIKey):
		fail(w, r, http.StatusUnauthorized, "invalid_api_key", "Missing or incorrect API key. It looks like sk-acme-123.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		fail(w, r, http.StatusRequestTimeout, "request_timeout", "The request's body did not arrive in time.")
	case inflight.StatusOf(err) == http.StatusBadRequest:
		fail(w, r, http.StatusBadRequest, "", "The body must be a JSON object with a field model, a name of 1 to 256 bytes.")
	case r.URL.Path == messagesPath:
		inflight.RejectAnthropic(w, r, err)
	default:
		inflight.RejectOpenAI(w, r, err)
	}
}

// pinned sends the upstream the very model that the slot counts. A body that names the model twice, or once as "model"
// and once as "Model", reads one way here and another way there: without this it would pass a limit by.
func (g *gateway) pinned(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // to the end: only then does net/http notice a client that goes away
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil {
			fail(w, r, http.StatusBadRequest, "", "The request's body is not valid JSON.")
			return
		}
		maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return strings.EqualFold(name, "model") })
		fields["model"], _ = json.Marshal(inflight.FromContext(r.Context()).Key().Model)
		body, _ = json.Marshal(fields)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// newProxy passes requests on to a real model server, and each piece of its answers back at once.
func newProxy(target *url.URL, log *slog.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 256, ForceAttemptHTTP2: true},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else the client went away
				log.Warn("upstream failed", "err", err)
			}
			fail(w, r, http.StatusBadGateway, "", "The model server cannot be reached.")
		},
	}
}
