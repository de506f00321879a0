package inflight_test

import (
	"compress/gzip"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// streaming answers with one event, and then with the rest when end is closed. For /abort it breaks off instead, and so
// it does when the client goes: a proper end might still reach that over TLS.
func streaming(end <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "data: two\n\n")
	}
}

func TestC2EndsOfABody(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			for name, end := range map[string]func(t *testing.T, res *http.Response, cancel func(), end chan<- struct{}){
				"EOF": func(t *testing.T, res *http.Response, _ func(), end chan<- struct{}) {
					t.Helper()
					close(end)
					text, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.Contains(t, string(text), "two")
				},
				"read error": func(t *testing.T, res *http.Response, _ func(), end chan<- struct{}) {
					t.Helper()
					close(end)
					_, err := io.ReadAll(res.Body)
					require.Error(t, err)
				},
				"Close": func(t *testing.T, res *http.Response, _ func(), _ chan<- struct{}) {
					t.Helper()
					require.NoError(t, res.Body.Close())
				},
				"abort-unread": func(t *testing.T, _ *http.Response, cancel func(), _ chan<- struct{}) {
					t.Helper()
					cancel()
				},
			} {
				t.Run(name, func(t *testing.T) {
					w := newWeb(t, 1)
					ended := make(chan struct{})
					s := newSite(t, protocol, streaming(ended))
					tr := w.over(s.transport)
					path := map[string]string{"read error": "/abort"}[name]
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					res, err := tr.RoundTrip(newRequest(ctx, t, s.URL+path))
					require.NoError(t, err)

					t.Run("early-at-header", func(t *testing.T) {
						w.is(t, 1)
						_, err = res.Body.Read(make([]byte, 5))
						require.NoError(t, err)
						_, err = tr.RoundTrip(newRequest(t.Context(), t, s.URL))
						require.ErrorIs(t, err, inflight.ErrLimit)
						w.is(t, 1)
					})
					end(t, res, cancel, ended)
					if name == "abort-unread" {
						w.becomes(t, 0)
					}
					w.is(t, 0)
					_ = res.Body.Close()
					w.is(t, 0)
					w.empty(t)
				})
			}
		})
	}
}

func TestC2Racing(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			w := newWeb(t, 1)
			s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 4 {
					_, _ = w.Write(make([]byte, 512))
					_ = http.NewResponseController(w).Flush()
				}
			}))
			tr := w.over(s.transport)
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				res, err := tr.RoundTrip(newRequest(ctx, t, s.URL))
				require.NoError(t, err)
				ways := []func(){
					func() { _, _ = io.Copy(io.Discard, res.Body) },
					func() { _ = res.Body.Close() },
					cancel,
				}
				rnd.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
				var all sync.WaitGroup
				for _, way := range ways {
					all.Go(way)
				}
				all.Wait()
				w.is(t, 0)
			}
			w.empty(t)
			require.Equal(t, uint64(200), w.Stats().Released)
		})
	}
}

func TestC10GzipAndTrailers(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "Declared")
				out := io.Writer(w)
				if r.URL.Path == "/gzip" {
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					defer func() { _ = z.Close() }()
					out = z
				}
				_, _ = io.WriteString(out, "text")
				w.Header().Set("Declared", "yes")
				w.Header().Set(http.TrailerPrefix+"Undeclared", "also")
			}))
			tr := w.over(s.transport)
			for _, path := range []string{"/plain", "/gzip"} {
				res, err := tr.RoundTrip(newRequest(t.Context(), t, s.URL+path))
				require.NoError(t, err)
				require.Equal(t, path == "/gzip", res.Uncompressed)
				w.is(t, 1)
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				w.is(t, 0)
				require.Equal(t, "text", string(text))
				require.Equal(t, http.Header{"Declared": {"yes"}, "Undeclared": {"also"}}, res.Trailer)
				require.NoError(t, res.Body.Close())
			}
			t.Run("none declared", func(t *testing.T) {
				s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).Flush()
					w.Header().Set(http.TrailerPrefix+"Undeclared", "also")
				}))
				res, err := w.over(s.transport).RoundTrip(newRequest(t.Context(), t, s.URL))
				require.NoError(t, err)
				_, err = io.ReadAll(res.Body)
				require.NoError(t, err)
				require.Equal(t, http.Header{"Undeclared": {"also"}}, res.Trailer)
				require.NoError(t, res.Body.Close())
			})
			w.empty(t)
		})
	}
}

func TestC13EarlyAnswer(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			}))
			r, pipe := io.Pipe()
			stopped := make(chan error, 1)
			go func() {
				for {
					if _, err := pipe.Write(make([]byte, 1<<10)); err != nil {
						stopped <- err
						return
					}
				}
			}()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, r)
			require.NoError(t, err)
			res, err := w.over(s.transport).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
			w.is(t, 1)
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, "too large\n", string(text))
			w.is(t, 0)
			require.NoError(t, res.Body.Close())
			require.Error(t, receive(t, stopped))
			w.empty(t)
		})
	}
}
