package inflight_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// newEchoSite switches protocols and echoes until the client has gone. For /bye it says so and hangs up.
func newEchoSite(t *testing.T, protocol string) *site {
	t.Helper()
	return newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf := upgrade(w)
		defer func() { _ = conn.Close() }()
		if r.URL.Path == "/bye" {
			_, _ = io.WriteString(conn, "bye")
			return
		}
		_, _ = io.Copy(conn, buf)
	}))
}

// dialBody switches protocols by the transport.
func dialBody(ctx context.Context, t *testing.T, tr http.RoundTripper, url string) io.ReadWriteCloser {
	t.Helper()
	req := newRequest(ctx, t, url)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	body, ok := res.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	t.Cleanup(func() { _ = body.Close() })
	return body
}

func requireEcho(t *testing.T, body io.ReadWriter, text string) {
	t.Helper()
	_, err := io.WriteString(body, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(body, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func TestC4Upgrade(t *testing.T) {
	for _, protocol := range hijackProtocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newEchoSite(t, protocol)
			tr := w.over(s.transport)
			t.Run("held until Close", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				body := dialBody(ctx, t, tr, s.URL)
				requireEcho(t, body, "hello")
				cancel()
				requireEcho(t, body, "the dial's context has ended, the connection has not")
				w.is(t, 1)
				_, half := body.(interface{ CloseWrite() error })
				require.False(t, half)
				require.NoError(t, body.Close())
				w.is(t, 0)
				_ = body.Close()
				w.empty(t)
			})
			t.Run("EOF is not the end", func(t *testing.T) {
				body := dialBody(t.Context(), t, tr, s.URL+"/bye")
				text, err := io.ReadAll(body)
				require.NoError(t, err)
				require.Equal(t, "bye", string(text))
				w.is(t, 1)
				require.NoError(t, body.Close())
				w.empty(t)
			})
			t.Run("ReleaseAtHeader", func(t *testing.T) {
				tr := inflight.NewTransport(s.transport, w.Registry, inflight.TransportConfig{Key: asWebKey, ReleaseAtHeader: true})
				body := dialBody(t.Context(), t, tr, s.URL)
				w.is(t, 0)
				requireEcho(t, body, "hello")
				require.NoError(t, body.Close())
				w.empty(t)
			})
		})
	}
}

func TestC4EndedFromOutside(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			w := newEndableWeb(t)
			s := newEchoSite(t, "h1")
			body := dialBody(t.Context(), t, w.over(s.transport), s.URL)
			requireEcho(t, body, "hello")
			end(t, w)
			_, err := body.Read(make([]byte, 1))
			require.Error(t, err)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

func TestC4ReverseProxy(t *testing.T) {
	for _, protocol := range hijackProtocols {
		t.Run(protocol, func(t *testing.T) {
			front, back := newWeb(t, 1), newWeb(t, 1)
			upstream := newEchoSite(t, protocol)
			target, err := url.Parse(upstream.URL)
			require.NoError(t, err)
			proxy := &httputil.ReverseProxy{
				Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
				Transport: back.over(upstream.transport),
			}
			s := newSite(t, protocol, front.behind(proxy.ServeHTTP))
			for range 3 {
				p := dialUpgrade(t, s)
				p.echoes("hello")
				front.is(t, 1)
				back.is(t, 1)
				require.NoError(t, p.Close())
				front.becomes(t, 0)
				back.becomes(t, 0)
			}
			front.empty(t)
			back.empty(t)
		})
	}
}

// duplex is a body that can be written to.
type duplex struct {
	openBody
	io.Writer
}

func TestC4OnlySwitchingMakesItDuplex(t *testing.T) {
	w := newWeb(t, 1)
	for name, c := range map[string]struct {
		method string
		status int
		after  int // in use after EOF
	}{
		"200":      {http.MethodGet, http.StatusOK, 0},
		"101":      {http.MethodGet, http.StatusSwitchingProtocols, 1},
		"HEAD 101": {http.MethodHead, http.StatusSwitchingProtocols, 1},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://upstream/", http.NoBody)
			require.NoError(t, err)
			res, err := w.over(tripFunc(func(*http.Request) (*http.Response, error) {
				res := answer(c.status, -1)
				res.Body = duplex{openBody{strings.NewReader("text")}, io.Discard}
				return res, nil
			})).RoundTrip(req)
			require.NoError(t, err)
			_, err = io.ReadAll(res.Body)
			require.NoError(t, err)
			w.is(t, c.after)
			require.NoError(t, res.Body.Close())
			w.empty(t)
		})
	}
}
