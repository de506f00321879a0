package inflight_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A discarder is a ResponseWriter that can be used again and allocates nothing.
type discarder struct{ header http.Header }

func (d *discarder) Header() http.Header               { return d.header }
func (d *discarder) Write(p []byte) (int, error)       { return len(p), nil }
func (d *discarder) WriteString(s string) (int, error) { return len(s), nil }
func (d *discarder) WriteHeader(int)                   {}

func TestMiddlewareAllocations(t *testing.T) {
	w := newWeb(t, 1)
	h := w.behind(func(http.ResponseWriter, *http.Request) {})
	req, out := newRequest(t.Context(), t, "/"), &discarder{http.Header{}}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(out, req) }), 3.0,
		"the handle, the context and the request with that context")

	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	defer held.Release()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(out, req) }), 4.0)
}
