package e2e_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A wsSite is a WebSocket server, the way to it, and all the registries on that way, each of which holds a slot of acme
// for each open connection.
type wsSite struct {
	url   string
	roots *tls.Config
	regs  []*inflight.Registry
}

func wsSiteAt(s *httptest.Server, regs ...*inflight.Registry) wsSite {
	return wsSite{"ws" + strings.TrimPrefix(s.URL, "http"), rootsOf(s), regs}
}

var oneSlot = inflight.Limits{Key: 1}

// limited puts a middleware with a registry of its own before h.
func limited(t *testing.T, h http.Handler) (http.Handler, *inflight.Registry) {
	t.Helper()
	reg := newRegistry(t, oneSlot)
	return inflight.Middleware(reg, inflight.MiddlewareConfig{Key: always(acme)})(h), reg
}

// proxyTo returns a reverse proxy to s, over a transport that limits if reg is not nil.
func proxyTo(t *testing.T, s *httptest.Server, reg *inflight.Registry, reuse bool) http.Handler {
	t.Helper()
	base := &http.Transport{TLSClientConfig: rootsOf(s)}
	t.Cleanup(base.CloseIdleConnections)
	if reg == nil {
		return reverseProxy(t, s.URL, base)
	}
	return reverseProxy(t, s.URL, inflight.NewTransport(base, reg, inflight.TransportConfig{Key: always(acme), Reuse: reuse}))
}

var wsSites = map[string]func(t *testing.T, h http.Handler) wsSite{
	"plain": func(t *testing.T, h http.Handler) wsSite {
		t.Helper()
		h, reg := limited(t, h)
		return wsSiteAt(serve(t, plain, h), reg)
	},
	"TLS": func(t *testing.T, h http.Handler) wsSite {
		t.Helper()
		h, reg := limited(t, h)
		return wsSiteAt(serve(t, tls1, h), reg)
	},
	"proxy over transport": func(t *testing.T, h http.Handler) wsSite {
		t.Helper()
		reg := newRegistry(t, oneSlot)
		return wsSiteAt(serve(t, plain, proxyTo(t, serve(t, plain, h), reg, false)), reg)
	},
	"middleware before proxy": func(t *testing.T, h http.Handler) wsSite {
		t.Helper()
		p, reg := limited(t, proxyTo(t, serve(t, plain, h), nil, false))
		return wsSiteAt(serve(t, plain, p), reg)
	},
	"all, TLS": func(t *testing.T, h http.Handler) wsSite {
		t.Helper()
		h, behind := limited(t, h)
		between := newRegistry(t, oneSlot)
		p, front := limited(t, proxyTo(t, serve(t, tls1, h), between, false))
		return wsSiteAt(serve(t, tls1, p), front, between, behind)
	},
	"middleware and transport on one slot": func(t *testing.T, h http.Handler) wsSite {
		t.Helper()
		reg := newRegistry(t, oneSlot)
		p := proxyTo(t, serve(t, plain, h), reg, true)
		p = inflight.Middleware(reg, inflight.MiddlewareConfig{Key: always(acme)})(p)
		return wsSiteAt(serve(t, plain, p), reg)
	},
}

// wsEndings are all the ways in which a connection can end. The last argument is the registry whose operator ends it,
// where it is one who does.
var wsEndings = map[string]struct {
	byOperator bool
	end        func(t *testing.T, c wsClient, reg *inflight.Registry)
}{
	"client closes": {end: func(t *testing.T, c wsClient, _ *inflight.Registry) {
		t.Helper()
		require.NoError(t, c.Close())
	}},
	"client drops": {end: func(t *testing.T, c wsClient, _ *inflight.Registry) {
		t.Helper()
		require.NoError(t, c.Drop())
	}},
	"server closes": {end: func(t *testing.T, c wsClient, _ *inflight.Registry) {
		t.Helper()
		require.NoError(t, c.Send("bye"))
		wsGone(t, c)
	}},
	"Cancel": {byOperator: true, end: func(t *testing.T, c wsClient, reg *inflight.Registry) {
		t.Helper()
		require.True(t, reg.Cancel(reg.Slots(1)[0].ID, nil))
		wsGone(t, c)
	}},
	"Evict": {byOperator: true, end: func(t *testing.T, c wsClient, reg *inflight.Registry) {
		t.Helper()
		require.True(t, reg.Evict(reg.Slots(1)[0].ID))
		require.Zero(t, reg.InUse(acme))
		wsGone(t, c)
	}},
}

// wsGone checks that the connection ends by the other side.
func wsGone(t *testing.T, c wsClient) {
	t.Helper()
	_, err := c.Receive()
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "timeout")
	_ = c.Drop()
}

func TestWebSocketHoldsItsSlotToItsEnd(t *testing.T) {
	for serverName, server := range wsServers {
		for siteName, open := range wsSites {
			for clientName, dial := range wsClients {
				t.Run(serverName+"/"+siteName+"/"+clientName, func(t *testing.T) {
					site := open(t, server)
					for name, ending := range wsEndings {
						operators := site.regs[:1]
						if ending.byOperator {
							operators = site.regs
						}
						for _, operator := range operators {
							c, _, err := dial(t, site.url, site.roots)
							require.NoError(t, err, name)
							echoes(t, c)
							for _, reg := range site.regs {
								require.Equal(t, 1, reg.InUse(acme), name)
							}
							ending.end(t, c, operator)
							for _, reg := range site.regs {
								uses(t, reg, 0)
							}
						}
					}
				})
			}
		}
	}
}

func echoes(t *testing.T, c wsClient) {
	t.Helper()
	for _, text := range []string{"Hello", strings.Repeat("x", 20_000)} {
		require.NoError(t, c.Send(text))
		answer, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, text, answer)
	}
}

// A second dial is refused with the status of a refusal, for as long as the first connection is open.
func TestWebSocketRefusal(t *testing.T) {
	for siteName, open := range wsSites {
		for clientName, dial := range wsClients {
			t.Run(siteName+"/"+clientName, func(t *testing.T) {
				site := open(t, wsServers["gorilla returns"])
				first, _, err := dial(t, site.url, site.roots)
				require.NoError(t, err)
				echoes(t, first)

				_, resp, err := dial(t, site.url, site.roots)
				require.Error(t, err)
				if siteName == "proxy over transport" {
					require.Equal(t, http.StatusBadGateway, resp.StatusCode, "what ReverseProxy says to any error")
				} else {
					require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
					require.Equal(t, "1", resp.Header.Get("Retry-After"))
				}
				echoes(t, first)
				require.NoError(t, first.Close())
				for _, reg := range site.regs {
					uses(t, reg, 0)
				}

				again, _, err := dial(t, site.url, site.roots)
				require.NoError(t, err)
				require.NoError(t, again.Close())
			})
		}
	}
}

// A handshake that fails gives the slot back when the handler has answered.
func TestWebSocketFailedHandshake(t *testing.T) {
	for serverName, server := range wsServers {
		for siteName, open := range wsSites {
			t.Run(serverName+"/"+siteName, func(t *testing.T) {
				site := open(t, server)
				req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, "http"+strings.TrimPrefix(site.url, "ws"), http.NoBody)
				require.NoError(t, err)
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "websocket")
				req.Header.Set("Sec-Websocket-Version", "3")
				tr := &http.Transport{TLSClientConfig: site.roots}
				defer tr.CloseIdleConnections()
				for range 3 { // the limit is 1
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, http.StatusBadRequest, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
					for _, reg := range site.regs {
						uses(t, reg, 0)
					}
				}
			})
		}
	}
}

// http.Server.Shutdown does not see hijacked connections. Registry.Shutdown waits for them.
func TestWebSocketShutdown(t *testing.T) {
	site := wsSites["plain"](t, wsServers["coder returns"])
	c, _, err := wsClients["gorilla"](t, site.url, site.roots)
	require.NoError(t, err)
	echoes(t, c)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, site.regs[0].Shutdown(short), "1 slot left")

	done, long := make(chan error, 1), bounded(t)
	go func() { done <- site.regs[0].Shutdown(long) }()
	require.NoError(t, c.Close())
	require.NoError(t, <-done)
}
