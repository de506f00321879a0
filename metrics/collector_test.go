package metrics_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/metrics"
)

var (
	glm  = inflight.Key{Org: "acme", Model: "glm"}
	qwen = inflight.Key{Org: "acme", Model: "qwen"}
)

// newRegistry makes a registry that sweeps only by hand.
func newRegistry(tb testing.TB, cfg inflight.Config) *inflight.Registry {
	tb.Helper()
	cfg.SweepInterval = -1
	reg, err := inflight.New(cfg)
	require.NoError(tb, err)
	return reg
}

// hold takes a slot and keeps it to the end of the test, if nobody releases it before.
func hold(tb testing.TB, reg *inflight.Registry, k inflight.Key, opts ...inflight.Option) *inflight.Slot {
	tb.Helper()
	slot, err := reg.TryAcquire(k, opts...)
	require.NoError(tb, err)
	tb.Cleanup(slot.Release)
	return slot
}

// holdMany takes n slots, by turns of so many keys, and keeps them to the end of the test.
func holdMany(tb testing.TB, reg *inflight.Registry, n, keys int) {
	tb.Helper()
	slots := make([]*inflight.Slot, n)
	for i := range slots {
		var err error
		slots[i], err = reg.TryAcquire(inflight.Key{Org: strconv.Itoa(i % keys), Model: "glm"})
		require.NoError(tb, err)
	}
	tb.Cleanup(func() {
		for _, slot := range slots {
			slot.Release()
		}
	})
}

// scrape returns the values of a collector's series, without those of histograms, as name{label="value"} without the
// label registry.
func scrape(tb testing.TB, c prometheus.Collector) map[string]float64 {
	tb.Helper()
	pedantic := prometheus.NewPedanticRegistry()
	require.NoError(tb, pedantic.Register(c))
	families, err := pedantic.Gather()
	require.NoError(tb, err)
	series := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "registry" {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			name := strings.TrimPrefix(f.GetName(), "inflight_")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if m.GetHistogram() == nil {
				series[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return series
}

// Each number is another one, so that none can stand in another's place.
func TestEveryNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{
			Limits:   inflight.Fixed(inflight.Limits{Key: 20, Org: 40, Model: 30, Total: 50}),
			LongHeld: time.Minute, MaxWaitersPerKey: 2,
		})
		begun := time.Now()
		hold(t, reg, glm, inflight.Weight(3))
		hold(t, reg, glm, inflight.Weight(4))
		hold(t, reg, qwen)
		time.Sleep(90 * time.Second) // those three are held long

		hold(t, reg, qwen, inflight.Weight(12)).Release() // a burst, seen as a peak
		reg.Sweep()
		reg.Sweep()
		time.Sleep(time.Second)
		reg.Sweep()
		for range 2 {
			hold(t, reg, qwen, inflight.Weight(7)).Release() // and another, that is recent
		}
		for range 4 {
			reg.Evict(hold(t, reg, qwen).ID())
		}
		full := []inflight.Option{inflight.Weight(18), inflight.MaxWait(time.Second)}
		for range 5 {
			_, err := reg.TryAcquire(glm, full...)
			require.ErrorIs(t, err, inflight.ErrLimit)
		}
		for range 6 {
			_, err := reg.Acquire(t.Context(), glm, inflight.Weight(21))
			require.ErrorIs(t, err, inflight.ErrLimit)
		}
		for range 7 {
			_, err := reg.Acquire(t.Context(), glm, full...)
			require.ErrorIs(t, err, inflight.ErrLimit)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() { _, _ = reg.Acquire(ctx, glm, inflight.Weight(18)) }) //slotvet:ignore cancelled while it waits
		}
		synctest.Wait()
		for range 8 {
			_, err := reg.Acquire(t.Context(), glm, full...)
			require.ErrorIs(t, err, inflight.ErrTooManyWaiters)
		}
		done, end := context.WithCancel(t.Context())
		end()
		for range 9 {
			_, err := reg.Acquire(done, glm)
			require.ErrorIs(t, err, context.Canceled)
		}

		want := map[string]float64{
			"slots": 3, "slots_weight": 8, "slots_weight_recent_peak": 15, "keys": 2, "waiters": 2,
			"slots_per_key_max": 7, "slots_per_key_max_recent_peak": 8,
			"slots_long_held": 3, "slots_lost": 0, "oldest_slot_seconds": time.Since(begun).Seconds(),
			"last_sweep_timestamp_seconds": float64(begun.Unix()) + 91, "sweeps_total": 3,
			"admitted_total": 10, "released_total": 3, "evicted_total": 4, "lost_total": 0, "reclaimed_total": 0,
			"waited_total": 7, "canceled_total": 9, "closed_total": 0,
			"keys_at_limit": 0, "key_at_limit_seconds": 0,
		}
		for _, scope := range []string{"key", "org", "model", "total"} {
			for _, reason := range []string{"full", "too_heavy", "timed_out", "queue_full"} {
				want[fmt.Sprintf("rejected_total{reason=%q,scope=%q}", reason, scope)] = 0
			}
		}
		maps.Copy(want, map[string]float64{
			`rejected_total{reason="full",scope="key"}`:       5,
			`rejected_total{reason="too_heavy",scope="key"}`:  6,
			`rejected_total{reason="timed_out",scope="key"}`:  7,
			`rejected_total{reason="queue_full",scope="key"}`: 8,
		})
		c := metrics.NewCollector(reg)
		require.Equal(t, want, scrape(t, c))

		cancel()
		waiting.Wait()
		for _, refused := range []struct {
			scope  string
			limits inflight.Limits
		}{{"org", inflight.Limits{Org: 1}}, {"model", inflight.Limits{Model: 1}}, {"total", inflight.Limits{Total: 1}}} {
			reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(refused.limits)})
			hold(t, reg, glm)
			_, err := reg.TryAcquire(glm)
			require.ErrorIs(t, err, inflight.ErrLimit)
			require.NoError(t, reg.Close())
			_, err = reg.TryAcquire(glm)
			require.ErrorIs(t, err, inflight.ErrClosed)
			got := scrape(t, metrics.NewCollector(reg))
			require.Equal(t, 1.0, got[fmt.Sprintf(`rejected_total{reason="full",scope=%q}`, refused.scope)])
			require.Equal(t, 1.0, got["closed_total"])
			require.Zero(t, got["last_sweep_timestamp_seconds"], "none yet")
		}
	})
}

// A lost handle and a busy holder look different.
func TestBusyOrLeaked(t *testing.T) {
	for _, reclaim := range []bool{false, true} {
		reg := newRegistry(t, inflight.Config{ReclaimLost: reclaim})
		hold(t, reg, glm)
		_, err := reg.TryAcquire(glm) //slotvet:ignore dropped on purpose
		require.NoError(t, err)
		reg.Sweep()
		runtime.GC()
		reg.Sweep()
		got := scrape(t, metrics.NewCollector(reg))
		require.Equal(t, 1.0, got["lost_total"])
		if reclaim {
			require.Equal(t, []float64{1, 0, 1}, []float64{got["slots"], got["slots_lost"], got["reclaimed_total"]})
		} else {
			require.Equal(t, []float64{2, 1, 0}, []float64{got["slots"], got["slots_lost"], got["reclaimed_total"]})
		}
	}
}

// The gauge is the number of holders, however requests end.
func TestGaugeIsTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{})
		c := metrics.NewCollector(reg)
		inside := inflight.Middleware(reg, inflight.MiddlewareConfig{
			Key: func(*http.Request) (inflight.Key, error) { return glm, nil },
		})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if r.URL.Path == "/panics" {
				panic(http.ErrAbortHandler)
			}
		}))
		var cancels []context.CancelFunc
		var serving sync.WaitGroup
		for i := range 30 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			path := []string{"/returns", "/panics"}[i%2]
			serving.Go(func() {
				defer func() { _ = recover() }()
				inside.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
			})
		}
		for left := 30; ; left-- {
			synctest.Wait()
			require.EqualValues(t, left, scrape(t, c)["slots"])
			require.EqualValues(t, left, scrape(t, c)["slots_weight"])
			if left == 0 {
				break
			}
			cancels[left-1]()
		}
		serving.Wait()
	})
}

func TestSeriesDoNotGrowWithKeys(t *testing.T) {
	for name, opts := range map[string][]metrics.Option{"default": nil, "listed": {metrics.WithKeys(glm, qwen)}} {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		c := metrics.NewCollector(reg, opts...)
		hold(t, reg, glm)
		hold(t, reg, qwen)
		before := testutil.CollectAndCount(c)
		holdMany(t, reg, 100_000, 100_000)
		require.Equal(t, before, testutil.CollectAndCount(c), name)
		require.Equal(t, 100_002.0, scrape(t, c)["keys_at_limit"])
	}
}

func TestConventions(t *testing.T) {
	reg := newRegistry(t, inflight.Config{Name: "gateway"})
	problems, err := testutil.CollectAndLint(metrics.NewCollector(reg, metrics.WithKeys(glm)))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// The README has every metric, and no other.
func TestReadmeNamesEveryMetric(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var documented, exported []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(inflight_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(readme), -1) {
		documented = append(documented, m[1]+" "+m[2])
	}
	reg := newRegistry(t, inflight.Config{})
	hold(t, reg, glm)
	_, err = reg.Lease(1, time.Second)
	require.NoError(t, err)
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(metrics.NewCollector(reg, metrics.WithKeys(glm)))
	families, err := all.Gather()
	require.NoError(t, err)
	for _, f := range families {
		exported = append(exported, f.GetName()+" "+strings.ToLower(f.GetType().String()))
	}
	require.ElementsMatch(t, exported, documented)
}

func TestRegistriesSideBySide(t *testing.T) {
	all := prometheus.NewPedanticRegistry()
	for i, name := range []string{"", "in", "out"} {
		reg := newRegistry(t, inflight.Config{Name: name})
		require.NoError(t, all.Register(metrics.NewCollector(reg)))
		for range i {
			hold(t, reg, glm)
		}
		err := all.Register(metrics.NewCollector(newRegistry(t, inflight.Config{Name: name})))
		require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError))
	}
	require.NoError(t, testutil.GatherAndCompare(all, strings.NewReader(`
		# HELP inflight_slots Live slots.
		# TYPE inflight_slots gauge
		inflight_slots{registry=""} 0
		inflight_slots{registry="in"} 1
		inflight_slots{registry="out"} 2
	`), "inflight_slots"))
}
