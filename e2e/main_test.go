package e2e_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "inflight")
	if err != nil {
		panic(err)
	}
	gatewayPath = filepath.Join(dir, "gateway")
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

const (
	soon = 15 * time.Second     // for what happens at once, on a slow machine
	tick = 2 * time.Millisecond // between looks
)

// installed returns the path of a program, and skips the test where it is missing. With E2E_SKIPS=fail, as in .ci/run,
// that is a failure.
func installed(t *testing.T, program, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("E2E_SKIPS") == "fail":
		require.NoError(t, err)
	default:
		t.Skipf("%s is not installed: apt-get install %s", program, debianPackage)
	}
	return path
}

var acme = inflight.Key{Org: "acme", Model: "glm"}

func always(k inflight.Key) func(*http.Request) (inflight.Key, error) {
	return func(*http.Request) (inflight.Key, error) { return k, nil }
}

// newRegistry makes a registry that must be empty at the end of the test, and must have got back what it gave.
func newRegistry(t *testing.T, limits inflight.Limits) *inflight.Registry {
	t.Helper()
	reg, err := inflight.New(inflight.Config{Name: t.Name(), Limits: inflight.Fixed(limits), SweepInterval: -1})
	require.NoError(t, err)
	t.Cleanup(func() { drained(t, reg) })
	return reg
}

// drained waits until nothing is left in the registry, and checks that its books balance.
func drained(t *testing.T, reg *inflight.Registry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	require.NoError(t, reg.Shutdown(ctx), "%+v", reg.Slots(0))
	stats := reg.Stats()
	require.Zero(t, stats.InUse)
	require.Zero(t, stats.Keys)
	require.Zero(t, stats.Waiters)
	require.Zero(t, stats.Lost)
	require.Equal(t, stats.Admitted, stats.Released+stats.Evicted)
}

// uses waits until so many slots of acme are in use.
func uses(t *testing.T, reg *inflight.Registry, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return reg.InUse(acme) == n }, soon, tick, "want %d in use", n)
}

// A wire is the way in which a server of net/http is reached.
type wire string

const (
	plain wire = "h1"
	tls1  wire = "h1 over TLS"
	tls2  wire = "h2 over TLS"
	h2c   wire = "h2 without TLS"
)

// serve serves h on loopback until the test ends.
func serve(t *testing.T, over wire, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // panics and aborts are what is tested
	switch over {
	case plain:
		s.Start()
	case h2c:
		s.Config.Protocols = unencryptedHTTP2()
		s.Start()
		transportOf(s).Protocols = unencryptedHTTP2()
	case tls1:
		s.StartTLS()
	case tls2:
		s.EnableHTTP2 = true
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return s
}

func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// rootsOf returns what a client of s must trust, nil if s does not speak TLS.
func rootsOf(s *httptest.Server) *tls.Config {
	if s.Certificate() == nil {
		return nil
	}
	return &tls.Config{RootCAs: transportOf(s).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
}

// transportOf returns the transport of the server's own client.
func transportOf(s *httptest.Server) *http.Transport {
	tr, _ := s.Client().Transport.(*http.Transport)
	return tr
}

// get makes a GET request, whose response is closed at the end of the test.
func get(t *testing.T, c *http.Client, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// bounded is the context of the test, for calls that might otherwise hang.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// text reads all of a response.
func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// reverseProxy proxies to a server, piece by piece.
func reverseProxy(t *testing.T, to string, over http.RoundTripper) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     over,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
}
