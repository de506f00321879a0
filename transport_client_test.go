package inflight_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestC7Redirects(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/302":
					http.Redirect(w, r, "/", http.StatusFound)
				case "/307":
					http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
				default:
					body, _ := io.ReadAll(r.Body)
					_, _ = io.WriteString(w, r.Method+" "+string(body))
				}
			}))
			model := func(r *http.Request) (inflight.Key, error) { // reads the body of each hop
				_, err := inflight.JSONField(r, "model", 0)
				return webKey, err
			}
			const body = `{"model":"glm"}`
			s.client.Transport = w.over(s.transport)
			reading := *s.client
			reading.Transport = inflight.NewTransport(s.transport, w.Registry, inflight.TransportConfig{Key: model})
			for name, c := range map[string]struct {
				client     *http.Client
				path, want string
			}{
				"302":            {s.client, "/302", "GET "},
				"307":            {s.client, "/307", "POST " + body},
				"307, key reads": {&reading, "/307", "POST " + body},
			} {
				t.Run(name, func(t *testing.T) {
					res, err := c.client.Post(s.URL+c.path, "application/json", strings.NewReader(body))
					require.NoError(t, err)
					w.is(t, 1)
					text, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.Equal(t, c.want, string(text))
					require.NoError(t, res.Body.Close())
					w.empty(t)
				})
			}
			t.Run("ErrUseLastResponse", func(t *testing.T) {
				last := *s.client
				last.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				res, err := last.Get(s.URL + "/302")
				require.NoError(t, err)
				require.Equal(t, http.StatusFound, res.StatusCode)
				w.is(t, 1)
				require.NoError(t, res.Body.Close())
				w.empty(t)
			})
		})
	}
}

func TestC8RetryOfBase(t *testing.T) {
	w := newWeb(t, 1)
	var served atomic.Int32
	s := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1) == 2 { // the connection dies when it is used again
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
	}))
	s.client.Transport = w.over(s.transport)
	for range 2 {
		status, _ := s.get(t, "/")
		require.Equal(t, http.StatusOK, status)
		w.is(t, 0)
	}
	require.Equal(t, int32(3), served.Load())
	require.Equal(t, uint64(2), w.Stats().Admitted)
	require.Equal(t, 1, w.Stats().PeakInUse)
	w.empty(t)
}

func TestC9Wait(t *testing.T) {
	w := newWeb(t, 1)
	s := newSite(t, "h1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	waiting := inflight.NewTransport(s.transport, w.Registry, inflight.TransportConfig{Key: asWebKey, Wait: time.Hour})
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)

	t.Run("Client.Timeout", func(t *testing.T) {
		client := &http.Client{Transport: waiting, Timeout: 20 * time.Millisecond}
		_, err := client.Get(s.URL)
		var urlErr *url.Error
		require.ErrorAs(t, err, &urlErr)
		require.True(t, urlErr.Timeout())
		require.Zero(t, w.Stats().Waiters)
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := waiting.RoundTrip(newRequest(ctx, t, s.URL))
			failed <- err
		}()
		eventually(t, func() bool { return w.Stats().Waiters == 1 })
		cancel()
		require.Equal(t, context.Canceled, receive(t, failed))
		require.Zero(t, w.Stats().Waiters)
	})
	t.Run("Wait", func(t *testing.T) {
		brief := inflight.NewTransport(s.transport, w.Registry, inflight.TransportConfig{Key: asWebKey, Wait: time.Millisecond})
		_, err := brief.RoundTrip(newRequest(t.Context(), t, s.URL))
		require.ErrorIs(t, err, inflight.ErrLimit)
		require.Equal(t, uint64(1), w.Stats().Rejected[inflight.ScopeKey].TimedOut)
	})
	t.Run("admitted", func(t *testing.T) {
		statuses := make(chan int, 1)
		go func() {
			res, err := waiting.RoundTrip(newRequest(t.Context(), t, s.URL))
			if err == nil {
				statuses <- res.StatusCode
			}
		}()
		eventually(t, func() bool { return w.Stats().Waiters == 1 })
		held.Release()
		require.Equal(t, http.StatusOK, receive(t, statuses))
	})
	w.empty(t)
}

func TestC11Reuse(t *testing.T) {
	other := inflight.Key{Org: "acme", Model: "other"}
	elsewhere := newWeb(t, 1)
	for name, c := range map[string]struct {
		with  bool
		key   inflight.Key // the transport's
		of    *web         // the transport's; nil means that of the middleware
		inner func(t *testing.T, w *web, ctx context.Context) context.Context
		took  bool // whether the transport took a slot
		err   error
	}{
		"with":             {with: true, key: webKey},
		"without":          {key: webKey, err: inflight.ErrLimit},
		"another key":      {with: true, key: other, took: true},
		"another registry": {with: true, key: webKey, of: elsewhere, took: true},
		"ended": {with: true, key: webKey, took: true, inner: func(_ *testing.T, _ *web, ctx context.Context) context.Context {
			inflight.FromContext(ctx).Release()
			return context.WithoutCancel(ctx)
		}},
		"not the innermost": {
			with: true, key: webKey, err: inflight.ErrLimit,
			inner: func(t *testing.T, w *web, ctx context.Context) context.Context {
				t.Helper()
				slot, err := w.TryAcquire(other)
				require.NoError(t, err)
				t.Cleanup(slot.Release)
				return slot.Context(ctx)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWeb(t, 1)
			of := cmp.Or(c.of, w)
			base := tripFunc(func(*http.Request) (*http.Response, error) { return answer(http.StatusOK, -1), nil })
			key := func(*http.Request) (inflight.Key, error) { return c.key, nil }
			tr := inflight.NewTransport(base, of.Registry, inflight.TransportConfig{Key: key, Reuse: c.with})
			w.behind(func(_ http.ResponseWriter, r *http.Request) {
				ctx := r.Context()
				if c.inner != nil {
					ctx = c.inner(t, w, ctx)
				}
				before := of.Stats().Admitted
				res, err := tr.RoundTrip(newRequest(ctx, t, "http://upstream/"))
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.took, of.Stats().Admitted == before+1)
				if err != nil {
					require.ErrorContains(t, err, "acme/glm")
					return
				}
				require.Equal(t, 1, of.InUse(c.key))
				require.NoError(t, res.Body.Close())
				require.Equal(t, !c.took, of.InUse(c.key) == 1, "a reused slot is the handler's to the end")
			}).ServeHTTP(&bareWriter{}, newRequest(t.Context(), t, "/"))
			w.is(t, 0)
			elsewhere.empty(t)
		})
	}
}

func TestC14ReleaseAtHeader(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			ended := make(chan struct{})
			s := newSite(t, protocol, streaming(ended))
			tr := inflight.NewTransport(s.transport, w.Registry, inflight.TransportConfig{Key: asWebKey, ReleaseAtHeader: true})
			first, err := tr.RoundTrip(newRequest(t.Context(), t, s.URL))
			require.NoError(t, err)
			w.is(t, 0)
			second, err := tr.RoundTrip(newRequest(t.Context(), t, s.URL))
			require.NoError(t, err)
			w.is(t, 0)
			close(ended)
			for _, res := range []*http.Response{first, second} {
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.Equal(t, "data: one\n\ndata: two\n\n", string(text))
				require.NoError(t, res.Body.Close())
			}
			w.empty(t)
		})
	}
}

func TestC16KeyReadsTheBody(t *testing.T) {
	w := newWeb(t, 1)
	const text = `{"model":"glm","prompt":"hello"}`
	s := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	for name, key := range map[string]func(*http.Request) (inflight.Key, error){
		"JSONField": func(r *http.Request) (inflight.Key, error) {
			model, err := inflight.JSONField(r, "model", 0)
			return inflight.Key{Org: "acme", Model: model}, err
		},
		"replaced": func(r *http.Request) (inflight.Key, error) {
			all, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(all)))
			return webKey, err
		},
		"not read": asWebKey,
	} {
		t.Run(name, func(t *testing.T) {
			var sent io.ReadCloser
			tr := inflight.NewTransport(tripFunc(func(r *http.Request) (*http.Response, error) {
				sent = r.Body
				return s.transport.RoundTrip(r)
			}), w.Registry, inflight.TransportConfig{Key: key})
			body := &countedBody{Reader: strings.NewReader(text)}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
			require.NoError(t, err)
			res, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Same(t, body, req.Body)
			require.Equal(t, name == "not read", sent == io.ReadCloser(body), "net/http has fast paths for some types")
			w.is(t, 1)
			echo, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, text, string(echo))
			require.NoError(t, res.Body.Close())
			require.GreaterOrEqual(t, body.closes, 1)
			w.empty(t)
		})
	}
}

func TestC16KeyTakesTheBodyAway(t *testing.T) {
	w := newWeb(t, 1)
	tr := inflight.NewTransport(tripFunc(func(r *http.Request) (*http.Response, error) {
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Empty(t, text)
		require.NoError(t, r.Body.Close())
		return answer(http.StatusNoContent, 0), nil
	}), w.Registry, inflight.TransportConfig{Key: func(r *http.Request) (inflight.Key, error) {
		r.Body = nil
		return webKey, nil
	}})
	body := &countedBody{Reader: strings.NewReader("text")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://upstream/", body)
	require.NoError(t, err)
	_, err = tr.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, 1, body.closes)
	w.empty(t)
}
