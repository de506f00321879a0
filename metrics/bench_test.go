package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/metrics"
)

// crowded makes a registry with 100,000 live slots over 10,000 keys.
func crowded(tb testing.TB) *inflight.Registry {
	tb.Helper()
	reg := newRegistry(tb, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 10})})
	holdMany(tb, reg, 100_000, 10_000)
	return reg
}

// exposition is /metrics over one registry.
func exposition(reg *inflight.Registry, opts ...metrics.Option) http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(metrics.NewCollector(reg, opts...))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{})
}

func TestScrapeOfACrowd(t *testing.T) {
	got := scrape(t, metrics.NewCollector(crowded(t), metrics.WithKeys(inflight.Key{Org: "7", Model: "glm"})))
	require.Equal(t, 100_000.0, got["slots"])
	require.Equal(t, 10_000.0, got["keys"])
	require.Equal(t, 10_000.0, got["keys_at_limit"])
	require.Equal(t, 10.0, got[`key_slots{key="7/glm"}`])
	require.Equal(t, 99_990.0, got[`key_slots{key="other"}`])
}

// BenchmarkScrape scrapes a crowd: alone, and while somebody acquires and releases without pause. Then it also reports the
// longest that one of those acquires took during a scrape, as median over the scrapes. A machine that is busy with
// something else holds them up too: "while-acquiring/nothing" says for how long, in as much time.
func BenchmarkScrape(b *testing.B) {
	reg := crowded(b)
	handler := exposition(reg)
	scrape := func() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		_, _ = io.Copy(io.Discard, w.Body)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			scrape()
		}
	})
	var lasts time.Duration
	b.Run("while-acquiring", func(b *testing.B) {
		whileAcquiring(b, reg, scrape)
		lasts = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("while-acquiring/nothing", func(b *testing.B) {
		whileAcquiring(b, reg, func() { time.Sleep(lasts) })
	})
}

func whileAcquiring(b *testing.B, reg *inflight.Registry, work func()) {
	b.Helper()
	var done atomic.Bool
	var longest atomic.Int64
	var acquiring sync.WaitGroup
	acquiring.Go(func() {
		for !done.Load() {
			begun := time.Now()
			slot, err := reg.TryAcquire(glm)
			longest.Store(max(longest.Load(), time.Since(begun).Microseconds()))
			if err == nil {
				slot.Release()
			}
		}
	})
	var heldUp []int64
	for b.Loop() {
		longest.Store(0)
		work()
		heldUp = append(heldUp, longest.Load())
	}
	done.Store(true)
	acquiring.Wait()
	slices.Sort(heldUp)
	b.ReportMetric(float64(heldUp[len(heldUp)/2]), "µs-held-up")
}
