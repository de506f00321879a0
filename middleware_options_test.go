package inflight_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A countedBody counts how often it is read and closed.
type countedBody struct {
	io.Reader

	reads, closes int
}

func (b *countedBody) Read(p []byte) (int, error) { b.reads++; return b.Reader.Read(p) }
func (b *countedBody) Close() error               { b.closes++; return nil }

func TestS19Refused(t *testing.T) {
	w := newWeb(t, 1)
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	defer held.Release()
	before := w.Stats()

	called := false
	h := w.behind(func(http.ResponseWriter, *http.Request) { called = true })
	body := &countedBody{Reader: strings.NewReader("{}")}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", body))

	t.Run("refusal-pure", func(t *testing.T) {
		require.False(t, called)
		require.Zero(t, body.reads)
		after := w.Stats()
		require.Equal(t, before.Keys, after.Keys)
		require.Equal(t, before.InUse, after.InUse)
		require.Equal(t, before.Admitted, after.Admitted)
	})
	t.Run("answer", func(t *testing.T) {
		require.Equal(t, http.StatusTooManyRequests, rec.Code)
		require.Equal(t, "1", rec.Header().Get("Retry-After"))
		for _, secret := range []string{"acme", "glm", "limit reached"} {
			require.NotContains(t, rec.Body.String(), secret)
		}
	})
}

// hinted is an Acquirer whose refusals say when to come again.
type hinted struct{ after time.Duration }

func (h hinted) RetryAfter() time.Duration { return h.after }
func (h hinted) Error() string             { return "come again" }
func (h hinted) Unwrap() error             { return inflight.ErrLimit }

func (h hinted) Acquire(context.Context, inflight.Key, ...inflight.Option) (*inflight.Slot, error) {
	return nil, h
}

func TestS19RetryAfter(t *testing.T) {
	w := newWeb(t, 1)
	heavy := inflight.MiddlewareConfig{Key: asWebKey, Weight: func(*http.Request) int { return 2 }}
	negative := inflight.MiddlewareConfig{Key: asWebKey, Weight: func(*http.Request) int { return -1 }}
	for name, c := range map[string]struct {
		acquirer inflight.Acquirer
		cfg      inflight.MiddlewareConfig
		status   int
		after    string
	}{
		"retry-after-rounds-up": {hinted{1500 * time.Millisecond}, inflight.MiddlewareConfig{Key: asWebKey}, 429, "2"},
		"too heavy":             {w, heavy, 429, ""},
		"negative weight":       {w, negative, 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			inflight.Middleware(c.acquirer, c.cfg)(http.NotFoundHandler()).
				ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			require.Equal(t, c.status, rec.Code)
			require.Equal(t, c.after, rec.Header().Get("Retry-After"))
		})
	}
	w.empty(t)
}

func TestS19OwnReject(t *testing.T) {
	w := newWeb(t, 1)
	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	defer held.Release()

	var got error
	mw := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{
		Key: func(r *http.Request) (inflight.Key, error) {
			model, err := inflight.JSONField(r, "model", 0)
			return inflight.Key{Org: "acme", Model: model}, err
		},
		Reject: func(w http.ResponseWriter, r *http.Request, err error) {
			got = err
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.Copy(w, r.Body)
		},
	})
	rec := httptest.NewRecorder()
	mw(http.NotFoundHandler()).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"model":"glm"}`)))
	require.Equal(t, http.StatusTeapot, rec.Code)
	require.Equal(t, `{"model":"glm"}`, rec.Body.String(), "Reject sees the body whole")
	var limit *inflight.LimitError
	require.ErrorAs(t, got, &limit)
	require.Equal(t, webKey, limit.Key)
}

func TestS20KeyErrors(t *testing.T) {
	w := newWeb(t, 1)
	byField := func(r *http.Request) (inflight.Key, error) {
		model, err := inflight.JSONField(r, "model", 64)
		return inflight.Key{Org: "acme", Model: model}, err
	}
	body := `{"model":"glm"}`
	var seen string
	h := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: byField})(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			w.is(t, 1)
			text, _ := io.ReadAll(r.Body)
			seen = string(text)
		}))
	post := func(body string) int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		return rec.Code
	}
	require.Equal(t, http.StatusOK, post(body))
	require.Equal(t, body, seen, "the handler sees the body untouched")
	require.Equal(t, http.StatusBadRequest, post(`{"model":7}`))
	require.Equal(t, http.StatusRequestEntityTooLarge, post(`{"padding":"`+strings.Repeat("x", 64)+`","model":"glm"}`))
	w.empty(t)
	require.Equal(t, uint64(1), w.Stats().Admitted)

	failed := errors.New("no such customer")
	var got error
	inflight.Middleware(w.Registry, inflight.MiddlewareConfig{
		Key:    func(*http.Request) (inflight.Key, error) { return webKey, failed },
		Reject: func(_ http.ResponseWriter, _ *http.Request, err error) { got = err },
	})(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	var keyErr *inflight.KeyError
	require.ErrorAs(t, got, &keyErr)
	require.Equal(t, failed, keyErr.Err)
}

func TestMiddlewareOptions(t *testing.T) {
	shared := inflight.Key{Org: "shared"}
	w := newWeb(t, 5)
	mw := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{
		Key:    asWebKey,
		Also:   func(*http.Request) []inflight.Key { return []inflight.Key{shared} },
		Weight: func(*http.Request) int { return 3 },
		Label:  func(r *http.Request) string { return r.Header.Get("X-Request-Id") },
	})
	r := httptest.NewRequest(http.MethodGet, "/a", http.NoBody)
	r.Header.Set("X-Request-Id", "r1")
	mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.is(t, 3)
		require.Equal(t, 3, w.InUse(shared))
		require.Equal(t, "r1", inflight.FromContext(r.Context()).Label())
	})).ServeHTTP(httptest.NewRecorder(), r)
	w.empty(t)

	w.behind(func(_ http.ResponseWriter, r *http.Request) {
		require.Equal(t, "PATCH /v1/x", inflight.FromContext(r.Context()).Label(), "the default is method and path")
	}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPatch, "/v1/x", http.NoBody))
	require.Equal(t, uint64(2), w.Stats().Admitted)
}

// wrapped is an Acquirer that is not a *Registry.
type wrapped struct{ *web }

func (w wrapped) Acquire(ctx context.Context, k inflight.Key, o ...inflight.Option) (*inflight.Slot, error) {
	return w.Registry.Acquire(ctx, k, append(o, inflight.Label("wrapped"))...)
}

// empty is an Acquirer that breaks its promise.
type noSlots struct{}

func (noSlots) Acquire(context.Context, inflight.Key, ...inflight.Option) (*inflight.Slot, error) {
	return nil, nil //nolint:nilnil // the promise to break
}

func TestMiddlewareOtherAcquirer(t *testing.T) {
	w := newWeb(t, 1)
	cfg := inflight.MiddlewareConfig{Key: asWebKey}
	inflight.Middleware(wrapped{w}, cfg)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.is(t, 1)
		require.Equal(t, "wrapped", inflight.FromContext(r.Context()).Label())
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	w.empty(t)

	rec := httptest.NewRecorder()
	inflight.Middleware(noSlots{}, cfg)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("admitted without a slot")
	})).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, http.StatusInternalServerError, rec.Code)
}

func TestMiddlewareUserCodePanics(t *testing.T) {
	w := newWeb(t, 1)
	bug := func() { panic(errPanic) }
	for name, cfg := range map[string]inflight.MiddlewareConfig{
		"Key":    {Key: func(*http.Request) (inflight.Key, error) { bug(); return webKey, nil }},
		"Also":   {Key: asWebKey, Also: func(*http.Request) []inflight.Key { bug(); return nil }},
		"Weight": {Key: asWebKey, Weight: func(*http.Request) int { bug(); return 1 }},
		"Label":  {Key: asWebKey, Label: func(*http.Request) string { bug(); return "" }},
		"Skip":   {Key: asWebKey, Skip: func(*http.Request) bool { bug(); return false }},
		"Reject": {
			Key:    func(*http.Request) (inflight.Key, error) { return webKey, errPanic },
			Reject: func(http.ResponseWriter, *http.Request, error) { bug() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := io.NopCloser(bytes.NewReader(nil))
			require.PanicsWithValue(t, errPanic, func() {
				inflight.Middleware(w.Registry, cfg)(http.NotFoundHandler()).
					ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", body))
			})
			w.empty(t)
			slot, err := w.TryAcquire(webKey)
			require.NoError(t, err)
			slot.Release()
		})
	}
}
