package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/inflight-go/inflight"
	"github.com/stretchr/testify/require"
)

// Each contender does what is measured: it admits up to its limit, and again what was given back.
func TestContenders(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			l := c.make(2)
			l.cycle(3)
			first, ok := l.take("first")
			require.True(t, ok)
			l.cycle(3)
			_, ok = l.take("second")
			require.True(t, ok)
			_, ok = l.take("third")
			require.False(t, ok)
			first()
			l.cycle(3)
		})
	}
}

func TestKnowsTheHolder(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			l := c.make(2)
			require.Equal(t, c.buys.holder == yes, l.holders != nil)
			if l.holders == nil {
				return
			}
			release, _ := l.take("first")
			_, _ = l.take("second")
			require.ElementsMatch(t, []string{"first", "second"}, l.holders())
			release()
			require.Equal(t, []string{"second"}, l.holders())
		})
	}
}

// Whoever does not survive a double release lets one more in than the limit, or panics, or blocks.
func TestSurvivesADoubleRelease(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			l := c.make(2)
			first, _ := l.take("first")
			_, _ = l.take("second")
			first()
			first()
			_, ok := l.take("third")
			require.True(t, ok)
			_, beyond := l.take("fourth")
			require.Equal(t, c.buys.double == no, beyond)
		})
	}
}

// A handler that hijacks its connection and returns leaves a request behind that goes on.
func TestMiddlewareHoldsToTheEnd(t *testing.T) {
	for _, m := range middlewares {
		if m.buys.body == blank {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			returned, hijacked := make(chan struct{}, 1), make(chan net.Conn, 1)
			limited := m.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					return
				}
				if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
					hijacked <- conn
				}
			}), 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(w, r)
				returned <- struct{}{}
			}))
			defer server.Close()

			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			require.NoError(t, err)
			upgraded := <-hijacked
			<-returned

			resp, err := http.Get(server.URL)
			require.NoError(t, err)
			_ = resp.Body.Close()
			<-returned
			require.Equal(t, m.buys.body == yes, resp.StatusCode == http.StatusTooManyRequests)
			require.NoError(t, upgraded.Close())
		})
	}
}

// A response whose body nobody has read yet is still in flight.
func TestTransportHoldsToTheEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "body")
	}))
	defer server.Close()
	for _, tr := range transports {
		if tr.buys.body == blank {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			client := &http.Client{Transport: tr.wrap(base, 1)}
			first, err := client.Get(server.URL)
			require.NoError(t, err)
			second, err := client.Get(server.URL)
			require.Equal(t, tr.buys.body == yes, err != nil)
			if err == nil {
				require.NoError(t, second.Body.Close())
			}
			_, err = bufio.NewReader(first.Body).ReadString(0)
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, first.Body.Close())
			third, err := client.Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, third.Body.Close())
		})
	}
}

// The claims about what holds on the way of HTTP are those about the registry behind it.
func TestSlotsOfARequest(t *testing.T) {
	var holder *inflight.Slot
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { holder = inflight.FromContext(r.Context()) })
	middlewares[1].wrap(next, 1).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", http.NoBody))
	require.Equal(t, "GET /x", holder.Label())
}
