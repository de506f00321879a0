package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func muxed(pattern string, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(pattern, h)
	return mux
}

// The console works wherever it is mounted, by whatever router, with its prefix stripped or not.
func TestMount(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	for _, c := range []struct {
		name, base string
		handler    http.Handler
	}{
		{"alone", "/", h},
		{"on a mux", "/debug/inflight/", muxed("/debug/inflight/", h)},
		{"with a method", "/debug/inflight/", muxed("GET /debug/inflight/", h)},
		{"with a host", "/debug/inflight/", muxed("example.com/debug/inflight/", h)},
		{"as all of a mux", "/", muxed("/", h)},
		{"stripped", "/debug/inflight/", muxed("/debug/inflight/", http.StripPrefix("/debug/inflight", h))},
		{"stripped of the slash too", "/debug/inflight/", muxed("/debug/inflight/", http.StripPrefix("/debug/inflight/", h))},
		{"stripped of a part", "/debug/inflight/", muxed("/debug/", http.StripPrefix("/debug", muxed("/inflight/", h)))},
		{"in a tenant's path", "/t/7/inflight/", muxed("/t/{tenant}/inflight/", h)},
		{"below an api", "/api/inflight/", muxed("/api/inflight/", h)},
		{"below an api, stripped", "/api/inflight/", muxed("/api/inflight/", http.StripPrefix("/api/inflight", h))},
		{"by a router of another kind", "/ops/inflight/", h},
		{"by a router of another kind, below an api", "/api/inflight/", h},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := do(t, c.handler, http.MethodGet, c.base, "", "Accept", "text/html")
			require.Equal(t, http.StatusOK, page.Code)
			require.Contains(t, page.Body.String(), "<!doctype html>")
			require.Equal(t, "gateway", get(t, c.handler, c.base+"api/overview")["registry"])
			problem(t, do(t, c.handler, http.MethodGet, c.base+"api/slots/7", ""), http.StatusNotFound)
			for _, nothing := range []string{"nothing", "api", "api/nothing", "api/slots/1/2", "api/slots/1/cancel/2"} {
				require.Contains(t, problem(t, do(t, c.handler, http.MethodGet, c.base+nothing, ""), http.StatusNotFound), "nothing here")
			}
		})
	}
}

// Where it can be known what is the console's, what ends in a slash is not taken for the page.
func TestSlashTooMany(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	byChi := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "/ops/*"
		h.ServeHTTP(w, r)
	})
	for name, handler := range map[string]http.Handler{
		"on a mux": muxed("/ops/", h), "by chi": byChi, "stripped": muxed("/ops/", http.StripPrefix("/ops", h)),
	} {
		problem(t, do(t, handler, http.MethodGet, "/ops/api/slots/", ""), http.StatusNotFound)
		require.Equal(t, http.StatusOK, do(t, handler, http.MethodGet, "/ops/", "").Code, name)
	}
}

// What a ServeMux would redirect, without knowing the prefix, is not found instead.
func TestPathThatIsNotClean(t *testing.T) {
	h := http.StripPrefix("/debug", newConsole(newRegistry(t, inflight.Config{})))
	problem(t, do(t, h, http.MethodGet, "/debug/api/slots//7", ""), http.StatusNotFound)
}

// The page's links are relative, so they need the slash at the end of its path.
func TestSlashIsAdded(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	toRoot := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/"
		h.ServeHTTP(w, r)
	})
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"on a mux", muxed("/debug/in:flight/", h)},
		{"as a path of its own", muxed("/debug/in:flight", h)},
		{"stripped", muxed("/debug/in:flight", http.StripPrefix("/debug/in:flight", h))},
		{"stripped but for a slash", muxed("/debug/in:flight", toRoot)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := do(t, c.handler, http.MethodGet, "/debug/in:flight?q=acme", "")
			require.Equal(t, http.StatusTemporaryRedirect, w.Code, w.Body)
			from, err := url.Parse("http://example.com/debug/in:flight?q=acme")
			require.NoError(t, err)
			to, err := from.Parse(w.Header().Get("Location"))
			require.NoError(t, err)
			require.Equal(t, "http://example.com/debug/in:flight/?q=acme", to.String())
		})
	}
}

// A server takes such targets, and none may lead elsewhere.
func TestRedirectStaysHere(t *testing.T) {
	h := http.StripPrefix("//evil.example", newConsole(newRegistry(t, inflight.Config{})))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.RequestURI, r.URL.Path = "//evil.example", "//evil.example"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.True(t, w.Code != http.StatusTemporaryRedirect || strings.HasPrefix(w.Header().Get("Location"), "./"), w.Header())
}
