package console_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who imports the package gets the library and the standard library, and nothing else.
func TestDependsOnStandardLibraryOnly(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	foreign, err := list.Output()
	require.NoError(t, err)
	require.Equal(t, []string{"github.com/inflight-go/inflight", "github.com/inflight-go/inflight/console"},
		strings.Fields(string(foreign)))
}

var (
	acme   = inflight.Key{Org: "acme", Model: "glm"}
	globex = inflight.Key{Org: "globex", Model: "glm"}
	other  = inflight.Key{Org: "acme", Model: "llama"}
)

// newRegistry makes a registry that is closed when the test ends.
func newRegistry(t *testing.T, cfg inflight.Config) *inflight.Registry {
	t.Helper()
	cfg.Name, cfg.SweepInterval, cfg.Logger = "gateway", -1, quiet()
	reg, err := inflight.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reg.Close()) })
	return reg
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// hold takes a slot until the test ends.
func hold(t *testing.T, reg *inflight.Registry, k inflight.Key, opts ...inflight.Option) *inflight.Slot {
	t.Helper()
	slot, err := reg.TryAcquire(k, opts...)
	require.NoError(t, err)
	t.Cleanup(slot.Release)
	return slot
}

// lease makes a registry lease its limits, and grants this much of each that is in use.
func lease(t *testing.T, reg *inflight.Registry, g inflight.Grant) {
	t.Helper()
	leases, err := reg.Lease(1, time.Second)
	require.NoError(t, err)
	held, _ := leases.Held(0, 100, true)
	require.NotEmpty(t, held)
	for i := range held {
		leases.Answer(held[i:i+1], []inflight.Grant{g})
	}
}

// wait waits for a slot until the test, in a bubble, ends.
func wait(t *testing.T, reg *inflight.Registry, k inflight.Key, opts ...inflight.Option) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if slot, err := reg.Acquire(t.Context(), k, opts...); err == nil {
			slot.Release()
		}
	}()
	synctest.Wait()
	t.Cleanup(func() { <-done })
}

const (
	soon = 10 * time.Second     // for what happens at once, on a slow machine
	tick = 2 * time.Millisecond // between looks
)

// do sends a request to a console; headers come in pairs.
func do(t *testing.T, h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get gets JSON.
func get(t *testing.T, h http.Handler, target string) map[string]any {
	t.Helper()
	w := do(t, h, http.MethodGet, target, "")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return decode[map[string]any](t, w.Body)
}

//nolint:ireturn // T is what the caller asks for
func decode[T any](t *testing.T, r io.Reader) (v T) {
	t.Helper()
	require.NoError(t, json.NewDecoder(r).Decode(&v))
	return v
}

// problem checks that an answer is a problem of this status, and returns what it says.
func problem(t *testing.T, w *httptest.ResponseRecorder, status int) string {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	p := decode[map[string]any](t, w.Body)
	require.Equal(t, http.StatusText(status), p["title"])
	require.InEpsilon(t, float64(status), p["status"], 0)
	detail, _ := p["detail"].(string)
	return detail
}

// items returns a field of each of the items of a list.
func items(t *testing.T, list map[string]any, field string) []any {
	t.Helper()
	all, ok := list["items"].([]any)
	require.True(t, ok, list)
	values := make([]any, len(all))
	for i := range all {
		item, ok := all[i].(map[string]any)
		require.True(t, ok, all[i])
		values[i] = item[field]
	}
	return values
}

func newConsole(reg *inflight.Registry) http.Handler {
	return console.Handler(reg, console.Config{Logger: quiet()})
}

// collect runs the garbage collector often enough for what is lost to be found.
func collect() {
	for range 3 {
		runtime.GC()
	}
}
