package inflight_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// The key of most HTTP tests, and what names it.
var webKey = inflight.Key{Org: "acme", Model: "glm"}

func asWebKey(*http.Request) (inflight.Key, error) { return webKey, nil }

// byPath makes the path of a request its model.
func byPath(r *http.Request) (inflight.Key, error) {
	return inflight.Key{Org: "acme", Model: r.URL.Path}, nil
}

// A web is a registry for HTTP tests, with a limit per key and no sweeper.
type web struct{ *inflight.Registry }

func newWeb(t *testing.T, limit int) *web {
	t.Helper()
	return newWebOf(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: limit})})
}

func newWebOf(t *testing.T, cfg inflight.Config) *web {
	t.Helper()
	cfg.SweepInterval = -1
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := inflight.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return &web{r}
}

// behind is next behind a middleware that names webKey.
func (w *web) behind(next http.HandlerFunc) http.Handler {
	return inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: asWebKey})(next)
}

// over is base under a transport that names webKey.
func (w *web) over(base http.RoundTripper) http.RoundTripper {
	return inflight.NewTransport(base, w.Registry, inflight.TransportConfig{Key: asWebKey})
}

// becomes waits until webKey has n in use.
func (w *web) becomes(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() bool { return w.InUse(webKey) == n })
}

// is asserts that webKey has n in use.
func (w *web) is(t *testing.T, n int) {
	t.Helper()
	require.Equal(t, n, w.InUse(webKey))
}

// empty asserts that nobody holds or waits, and that each slot was given back once.
func (w *web) empty(t *testing.T) {
	t.Helper()
	s := w.Stats()
	require.Zero(t, s.Holders)
	require.Zero(t, s.InUse)
	require.Zero(t, s.Keys)
	require.Zero(t, s.Waiters)
	require.Equal(t, s.Admitted, s.Released+s.Evicted+s.Reclaimed)
}

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, time.Millisecond)
}

// closeLater closes c when the test ends.
func closeLater(t *testing.T, c io.Closer) {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
}

// as asserts that v is a T.
func as[T any](t *testing.T, v any) T { //nolint:ireturn // T is what is asked for
	t.Helper()
	got, ok := v.(T)
	require.True(t, ok)
	return got
}

// receive waits for a value that another goroutine is about to send.
func receive[T any](t *testing.T, c <-chan T) T { //nolint:ireturn // T is what was sent
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// A site is a server on a loopback socket, and a client of it.
type site struct {
	*httptest.Server

	client    *http.Client
	transport *http.Transport // the client's
}

// The protocols that a site may speak: in the clear, over TLS, HTTP/2 over TLS and HTTP/2 in the clear.
var (
	protocols       = []string{"h1", "tls", "h2", "h2c"}
	hijackProtocols = []string{"h1", "tls"}
)

func newSite(t *testing.T, protocol string, h http.Handler, set ...func(*http.Server)) *site {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, f := range set {
		f(srv.Config)
	}
	tr := &http.Transport{}
	switch protocol {
	case "h1":
		srv.Start()
	case "tls", "h2":
		srv.EnableHTTP2 = protocol == "h2"
		srv.StartTLS()
		tr = as[*http.Transport](t, srv.Client().Transport)
	case "h2c":
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		tr.Protocols = srv.Config.Protocols
		srv.Start()
	default:
		require.FailNow(t, "no such protocol", protocol)
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return &site{Server: srv, client: &http.Client{Transport: tr}, transport: tr}
}

// get asserts that a GET is answered, and returns the status and the body.
func (s *site) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	res, err := s.client.Get(s.URL + path)
	require.NoError(t, err)
	closeLater(t, res.Body)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// newRequest is a GET for a client.
func newRequest(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	return req
}

// A tripFunc is a base without a server.
type tripFunc func(*http.Request) (*http.Response, error)

func (f tripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
