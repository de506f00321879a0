package metrics_test

import (
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/metrics"
)

// Scrapers that ask for protobuf get both kinds of buckets, and both are what a histogram of client_golang would have
// made of the same durations.
func TestHistograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Name: "gateway", Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		want := prometheus.NewHistogram(prometheus.HistogramOpts{
			Buckets:                     prometheus.ExponentialBuckets(math.Pow(2, -10), 2, 23),
			NativeHistogramBucketFactor: 2, NativeHistogramZeroThreshold: math.Pow(2, -10),
		})
		observe := func(held time.Duration) {
			slot := hold(t, reg, glm)
			time.Sleep(held)
			slot.Release()
			want.Observe(held.Seconds())
		}
		exposes := func() {
			var expected dto.Metric
			require.NoError(t, want.Write(&expected))
			got := families(t, reg, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
			require.Contains(t, got, "inflight_wait_seconds")
			require.Equal(t, dto.MetricType_HISTOGRAM, got["inflight_hold_seconds"].GetType())
			m := got["inflight_hold_seconds"].GetMetric()[0]
			require.Equal(t, "gateway", m.GetLabel()[0].GetValue())
			h, e := m.GetHistogram(), expected.GetHistogram()
			require.Equal(t, e.GetSampleCount(), h.GetSampleCount())
			require.InDelta(t, e.GetSampleSum(), h.GetSampleSum(), 1e-6)
			require.Equal(t, classic(e), classic(h))
			require.Equal(t, e.GetSchema(), h.GetSchema())
			require.Equal(t, e.GetZeroThreshold(), h.GetZeroThreshold())
			require.Equal(t, e.GetZeroCount(), h.GetZeroCount())
			require.Equal(t, native(e), native(h))
		}

		exposes()
		for bound := time.Second / 1024; bound < 5000*time.Second; bound *= 2 {
			for range bound.Milliseconds() % 7 { // as many as make each bucket another one
				observe(bound)
			}
			observe(bound + 1)
		}
		observe(0)
		exposes()
	})
}

func TestHistogramsAsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		go func() {
			slot, _ := reg.TryAcquire(glm)
			time.Sleep(3 * time.Second)
			slot.Release()
		}()
		synctest.Wait()
		slot, err := reg.Acquire(t.Context(), glm)
		require.NoError(t, err)
		slot.Release()
		for name, count := range map[string]uint64{"inflight_hold_seconds": 2, "inflight_wait_seconds": 1} {
			h := families(t, reg, "")[name].GetMetric()[0].GetHistogram()
			require.Equal(t, count, h.GetSampleCount())
			buckets := classic(h)
			require.Len(t, buckets, 24)
			require.EqualValues(t, buckets[2]+1, buckets[4], "3 s are in between")
			require.Equal(t, 3.0, h.GetSampleSum())
			require.Empty(t, h.GetPositiveSpan())
		}
	})
}

// families scrapes as a client would that accepts this format.
func families(t *testing.T, reg *inflight.Registry, accept string) map[string]*dto.MetricFamily {
	t.Helper()
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(metrics.NewCollector(reg))
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", accept)
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)

	got := make(map[string]*dto.MetricFamily)
	decoder := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
	for {
		var f dto.MetricFamily
		err := decoder.Decode(&f)
		if errors.Is(err, io.EOF) {
			return got
		}
		require.NoError(t, err)
		got[f.GetName()] = &f
	}
}

// classic returns how many were at most each bound.
func classic(h *dto.Histogram) map[float64]uint64 {
	buckets := make(map[float64]uint64)
	for _, b := range h.GetBucket() {
		buckets[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	return buckets
}

// native returns how many are in each native bucket that is not empty.
func native(h *dto.Histogram) map[int32]int64 {
	buckets := make(map[int32]int64)
	index, n, i := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			n += h.GetPositiveDelta()[i]
			buckets[index] = n
			index++
			i++
		}
	}
	maps.DeleteFunc(buckets, func(_ int32, n int64) bool { return n == 0 })
	return buckets
}
