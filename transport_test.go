package inflight_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// unreached is a base that must not be called.
func unreached(t *testing.T) tripFunc {
	t.Helper()
	return func(*http.Request) (*http.Response, error) {
		t.Error("base was called")
		return nil, errors.New("unreached")
	}
}

func TestC1Refused(t *testing.T) {
	w := newWeb(t, 1)
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	defer held.Release()
	before := w.Stats()

	post := func(cfg inflight.TransportConfig) error {
		client := &http.Client{Transport: inflight.NewTransport(unreached(t), w.Registry, cfg)}
		body := &countedBody{Reader: strings.NewReader("{}")}
		_, err := client.Post("http://upstream/", "application/json", body)
		require.Equal(t, 1, body.closes)
		return err
	}
	t.Run("refusal-pure", func(t *testing.T) {
		require.ErrorIs(t, post(inflight.TransportConfig{Key: asWebKey}), inflight.ErrLimit)
	})
	t.Run("key error", func(t *testing.T) {
		err := post(inflight.TransportConfig{Key: func(*http.Request) (inflight.Key, error) { return webKey, errPanic }})
		var keyErr *inflight.KeyError
		require.ErrorAs(t, err, &keyErr)
		require.ErrorIs(t, err, errPanic)
	})
	t.Run("body of key", func(t *testing.T) {
		another := &countedBody{Reader: strings.NewReader("another")}
		require.ErrorIs(t, post(inflight.TransportConfig{Key: func(r *http.Request) (inflight.Key, error) {
			_, err := io.ReadAll(r.Body)
			r.Body = another
			return webKey, err
		}}), inflight.ErrLimit)
		require.Equal(t, 1, another.closes)
	})
	t.Run("pipe", func(t *testing.T) {
		client := &http.Client{Transport: w.over(unreached(t))}
		r, pipe := io.Pipe()
		_, err := client.Post("http://upstream/", "text/plain", r)
		require.ErrorIs(t, err, inflight.ErrLimit)
		_, err = pipe.Write([]byte("x"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
	after := w.Stats()
	require.Equal(t, before.Admitted, after.Admitted)
	require.Equal(t, before.InUse, after.InUse)
}

func TestC1KeyPanics(t *testing.T) {
	w := newWeb(t, 1)
	tr := inflight.NewTransport(unreached(t), w.Registry, inflight.TransportConfig{
		Key: func(*http.Request) (inflight.Key, error) { panic(errPanic) },
	})
	body := &countedBody{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://upstream/", body)
	require.NoError(t, err)
	require.PanicsWithValue(t, errPanic, func() { _, _ = tr.RoundTrip(req) })
	require.Equal(t, 1, body.closes)
	w.empty(t)
}

// openBody is a body with something to read for ever.
type openBody struct{ io.Reader }

func (openBody) Close() error { return nil }

func answer(status int, length int64) *http.Response {
	return &http.Response{StatusCode: status, ContentLength: length, Body: openBody{strings.NewReader("text")}}
}

func TestC3NoBody(t *testing.T) {
	w := newWeb(t, 1)
	noBody := answer(http.StatusOK, -1)
	noBody.Body = nil
	explicit := answer(http.StatusOK, -1)
	explicit.Body = http.NoBody
	for name, c := range map[string]struct {
		method string
		res    *http.Response
		held   int
	}{
		"a body":       {http.MethodGet, answer(http.StatusOK, -1), 1},
		"of length":    {http.MethodGet, answer(http.StatusOK, 4), 1},
		"HEAD":         {http.MethodHead, answer(http.StatusOK, 4), 0},
		"204":          {http.MethodGet, answer(http.StatusNoContent, -1), 0},
		"304":          {http.MethodGet, answer(http.StatusNotModified, 4), 0},
		"length 0":     {http.MethodGet, answer(http.StatusOK, 0), 0},
		"nil":          {http.MethodGet, noBody, 0},
		"no body":      {http.MethodGet, explicit, 0},
		"101, no pipe": {http.MethodGet, answer(http.StatusSwitchingProtocols, -1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			tr := w.over(tripFunc(func(*http.Request) (*http.Response, error) { return c.res, nil }))
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://upstream/", http.NoBody)
			require.NoError(t, err)
			res, err := tr.RoundTrip(req)
			require.NoError(t, err)
			w.is(t, c.held)
			if res.Body != nil {
				require.NoError(t, res.Body.Close())
			}
			w.empty(t)
		})
	}
}

func TestC3NoBodyOnAServer(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/204", "/304":
					status, _ := strconv.Atoi(r.URL.Path[1:])
					w.WriteHeader(status)
				case "/0":
				case "/chunked":
					_ = http.NewResponseController(w).Flush()
				case "/trailer":
					w.Header().Set("Trailer", "Sum")
					w.Header().Set("Sum", "0")
				default:
					_, _ = io.WriteString(w, "text")
				}
			}))
			tr := w.over(s.transport)
			trip := func(t *testing.T, method, path string) *http.Response {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
				require.NoError(t, err)
				res, err := tr.RoundTrip(req)
				require.NoError(t, err)
				return res
			}
			t.Run("no-body", func(t *testing.T) {
				for _, path := range []string{"/204", "/304", "/0"} {
					_ = trip(t, http.MethodGet, path) // and not closed
					w.is(t, 0)
				}
				_ = trip(t, http.MethodHead, "/")
				w.is(t, 0)
			})
			t.Run("empty chunked", func(t *testing.T) {
				res := trip(t, http.MethodGet, "/chunked")
				w.is(t, 1)
				n, err := res.Body.Read(make([]byte, 1))
				require.Zero(t, n)
				require.Equal(t, io.EOF, err)
				w.is(t, 0)
				res = trip(t, http.MethodGet, "/chunked")
				w.is(t, 1)
				require.NoError(t, res.Body.Close())
				w.is(t, 0)
			})
			t.Run("trailers only", func(t *testing.T) {
				res := trip(t, http.MethodGet, "/trailer")
				_, err := io.ReadAll(res.Body)
				require.NoError(t, err, "the release must not abort what is still to come")
				require.Equal(t, "0", res.Trailer.Get("Sum"))
				require.NoError(t, res.Body.Close())
				w.is(t, 0)
			})
			w.empty(t)
		})
	}
}

func TestC6BaseFails(t *testing.T) {
	w := newWeb(t, 1)
	failed := errors.New("no route")
	odd := answer(http.StatusOK, -1)
	for name, c := range map[string]struct {
		res *http.Response
		err error
	}{"err-base": {nil, failed}, "both": {odd, failed}, "neither": {nil, nil}} {
		t.Run(name, func(t *testing.T) {
			tr := w.over(tripFunc(func(*http.Request) (*http.Response, error) {
				w.is(t, 1)
				return c.res, c.err
			}))
			for range 64 {
				res, err := tr.RoundTrip(newRequest(t.Context(), t, "http://upstream/"))
				require.Same(t, c.res, res)
				require.Equal(t, c.err, err)
				w.is(t, 0)
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		tr := w.over(tripFunc(func(*http.Request) (*http.Response, error) { panic(errPanic) }))
		require.PanicsWithValue(t, errPanic, func() { _, _ = tr.RoundTrip(newRequest(t.Context(), t, "http://upstream/")) })
		w.is(t, 0)
	})
	t.Run("Goexit", func(t *testing.T) {
		tr := w.over(tripFunc(func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, errPanic }))
		req, done := newRequest(t.Context(), t, "http://upstream/"), make(chan bool)
		go func() {
			defer close(done)
			_, _ = tr.RoundTrip(req)
		}()
		receive(t, done)
		w.is(t, 0)
	})
	w.empty(t)
}

// idler is a base that notes when it is told to close its idle connections.
type idler struct {
	tripFunc

	told int
}

func (i *idler) CloseIdleConnections() { i.told++ }

func TestC12CloseIdleConnections(t *testing.T) {
	w := newWeb(t, 1)
	base := &idler{}
	client := http.Client{Transport: w.over(base)}
	client.CloseIdleConnections()
	require.Equal(t, 1, base.told)

	client.Transport = w.over(unreached(t))
	client.CloseIdleConnections() // and nothing happens
}

func TestC17SetUp(t *testing.T) {
	w := newWeb(t, 1)
	require.PanicsWithValue(t, "inflight: NewTransport: TransportConfig.Key is nil", func() {
		inflight.NewTransport(nil, w.Registry, inflight.TransportConfig{})
	})
	require.PanicsWithValue(t, "inflight: NewTransport: Acquirer is nil", func() {
		inflight.NewTransport(nil, nil, inflight.TransportConfig{Key: asWebKey})
	})
	s := newSite(t, "h1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	res, err := w.over(nil).RoundTrip(newRequest(t.Context(), t, s.URL))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	w.empty(t)
}

// That a request is no good is for base to say.
func TestTransportNoURL(t *testing.T) {
	w := newWeb(t, 1)
	_, err := w.over(nil).RoundTrip(&http.Request{Header: http.Header{}})
	require.ErrorContains(t, err, "URL")
	w.empty(t)
}

func TestTransportResponse(t *testing.T) {
	w := newWeb(t, 1)
	base := answer(http.StatusOK, -1)
	var sent *http.Request
	tr := w.over(tripFunc(func(r *http.Request) (*http.Response, error) {
		sent = r
		base.Request = r
		return base, nil
	}))
	type valueKey struct{}
	req := newRequest(t.Context(), t, "http://upstream/")
	req = req.WithContext(context.WithValue(req.Context(), valueKey{}, "v"))
	res, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.Same(t, req, res.Request, "whose context outlives the slot")
	require.NotSame(t, req, sent)
	require.Equal(t, "v", sent.Context().Value(valueKey{}))
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.ErrorIs(t, context.Cause(sent.Context()), inflight.ErrReleased)
	require.NoError(t, req.Context().Err())
	require.NoError(t, res.Body.Close())
	w.empty(t)
}
