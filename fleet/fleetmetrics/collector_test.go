package fleetmetrics_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/fleetmetrics"
	"github.com/inflight-go/inflight/fleet/internal/modelstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// families scrapes a collector.
func families(t *testing.T, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	all := prometheus.NewPedanticRegistry()
	require.NoError(t, all.Register(c))
	got, err := all.Gather()
	require.NoError(t, err)
	return got
}

// scrape returns the values of all series but those of histograms, as name{label="value"} without the label registry.
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	series := make(map[string]float64)
	for _, f := range families(t, c) {
		for _, m := range f.GetMetric() {
			name, label := strings.TrimPrefix(f.GetName(), "inflight_fleet_"), ""
			for _, l := range m.GetLabel() {
				if l.GetName() != "registry" { // no metric has more than one other
					label = fmt.Sprintf("{%s=%q}", l.GetName(), l.GetValue())
				}
			}
			if m.GetHistogram() == nil {
				series[name+label] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return series
}

// Each number is another one, so that none can stand in another's place.
func TestEveryNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := time.Now()
		time.Sleep(20 * time.Second)
		got := scrape(t, fleetmetrics.NewCollectorOf("gateway", func() fleet.Stats {
			return fleet.Stats{
				ID: "c0ffee", Processes: 1, Leases: 2, Granted: [4]int{3, 4, 5, 6}, Shards: 7, Fallback: 8, Learning: 9,
				LastSync: synced, Calls: 10, Failed: 11, Entries: 12, Denied: 13, Lost: 14, MaxmemoryPolicy: "noeviction",
				Latency: inflight.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{0, 0, 0}},
			}
		}))
		require.Equal(t, map[string]float64{
			"processes": 1, "leases": 2, "shards": 7, "shards_in_fallback": 8, "shards_learning": 9,
			`granted_weight{scope="key"}`: 3, `granted_weight{scope="org"}`: 4,
			`granted_weight{scope="model"}`: 5, `granted_weight{scope="total"}`: 6,
			"calls_total": 10, "call_failures_total": 11, "call_entries_total": 12, "denials_total": 13,
			"data_losses_total": 14, "last_sync_age_seconds": 20,
			`engine_info{maxmemory_policy="noeviction"}`: 1,
		}, got)
	})
}

// A fleet is seen to lose its engine and to find it again.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, err := inflight.New(inflight.Config{Name: "gateway", SweepInterval: -1, Limits: inflight.Fixed(inflight.Limits{Key: 8})})
		require.NoError(t, err)
		engine := modelstore.New(modelstore.Options{Latency: func() time.Duration { return time.Millisecond }})
		engine.Down(true)
		f, err := fleet.NewOn(t.Context(), engine, reg, fleet.Config{TTL: 30 * time.Second, Shards: 4})
		require.NoError(t, err)
		c := fleetmetrics.NewCollector(f)
		synctest.Wait()
		got := scrape(t, c)
		require.Equal(t, []float64{0, 4, math.Inf(1)}, []float64{got["processes"], got["shards_in_fallback"], got["last_sync_age_seconds"]})

		engine.Down(false)
		time.Sleep(time.Minute) // an engine without data first learns for a while
		slot, err := f.Acquire(t.Context(), inflight.Key{Org: "acme", Model: "glm"})
		require.NoError(t, err)
		got = scrape(t, c)
		require.Equal(t, []float64{1, 0, 0}, []float64{got["processes"], got["shards_in_fallback"], got["shards_learning"]})
		require.LessOrEqual(t, got["last_sync_age_seconds"], 10.1)
		require.Positive(t, got["leases"])
		require.Positive(t, got[`granted_weight{scope="key"}`])
		require.Positive(t, got["call_failures_total"])

		for _, family := range families(t, c) {
			if family.GetName() == "inflight_fleet_call_duration_seconds" {
				m := family.GetMetric()[0]
				require.Equal(t, "gateway", m.GetLabel()[0].GetValue())
				require.InDelta(t, got["calls_total"], float64(m.GetHistogram().GetSampleCount()), 0)
			}
		}
		slot.Release()
		require.NoError(t, f.Close(t.Context()))
	})
}

func TestConventions(t *testing.T) {
	problems, err := testutil.CollectAndLint(someCollector())
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
	for _, f := range families(t, someCollector()) {
		exported = append(exported, f.GetName()+" "+strings.ToLower(f.GetType().String()))
	}
	require.ElementsMatch(t, exported, documented)
}

func someCollector() *fleetmetrics.Collector {
	return fleetmetrics.NewCollectorOf("gateway", func() fleet.Stats {
		return fleet.Stats{Latency: inflight.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{0, 0, 0}}}
	})
}
