// Package fleetmetrics shows a fleet.Fleet to Prometheus.
//
//	prometheus.MustRegister(metrics.NewCollector(reg), fleetmetrics.NewCollector(f))
//
// The first of these, from package metrics, shows what is in flight in this process; the second shows how much of the
// limits it has leased, and how it gets on with the engine. It counts nothing itself, and no series bears the name of an
// organisation or a model.
//
// The folder deploy of the repository has alert rules and a dashboard over these metrics.
package fleetmetrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/metrics"
)

// A Collector shows one fleet, as one process sees it, under names that begin with inflight_fleet_ and with the name of
// its registry as label registry. Its methods are safe for concurrent use. Each scrape reads Stats once.
type Collector struct {
	registry string
	stats    func() fleet.Stats
	numbers  []number
	granted  *prometheus.Desc
	engine   *prometheus.Desc
	call     *prometheus.Desc
}

// A number is a metric that has one value.
type number struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*fleet.Stats) float64
}

// NewCollector makes a collector of a fleet. It panics if f is nil.
func NewCollector(f *fleet.Fleet) *Collector { return newCollector(f.Registry().Name(), f.Stats) }

func newCollector(registry string, stats func() fleet.Stats) *Collector {
	c := &Collector{registry: registry, stats: stats}
	gauge := func(name, help string, value func(*fleet.Stats) int) {
		c.numbers = append(c.numbers, number{
			c.desc(name, help), prometheus.GaugeValue, func(s *fleet.Stats) float64 { return float64(value(s)) },
		})
	}
	gauge("processes", "Live processes of the fleet, 0 before the engine was reached.",
		func(s *fleet.Stats) int { return s.Processes })
	gauge("leases", "Limits of which this process leases a part, or did not long ago.",
		func(s *fleet.Stats) int { return s.Leases })
	gauge("shards", "Parts in which leases are renewed, each for itself.",
		func(s *fleet.Stats) int { return s.Shards })
	gauge("shards_in_fallback", "Shards whose leases have lapsed and whose engine cannot be reached.",
		func(s *fleet.Stats) int { return s.Fallback })
	gauge("shards_learning", "Shards whose data were lost not long ago, where nothing more is granted for now.",
		func(s *fleet.Stats) int { return s.Learning })
	c.numbers = append(c.numbers, number{
		c.desc("last_sync_age_seconds", "Time since the shard that is worst off was renewed, +Inf if one never was."),
		prometheus.GaugeValue, func(s *fleet.Stats) float64 { return age(s.LastSync) },
	})

	counter := func(name, help string, value func(*fleet.Stats) uint64) {
		c.numbers = append(c.numbers, number{
			c.desc(name, help), prometheus.CounterValue, func(s *fleet.Stats) float64 { return float64(value(s)) },
		})
	}
	counter("calls_total", "Calls to the engine.", func(s *fleet.Stats) uint64 { return s.Calls })
	counter("call_failures_total", "Calls to the engine that failed.", func(s *fleet.Stats) uint64 { return s.Failed })
	counter("call_entries_total", "Limits that were spoken of in calls.", func(s *fleet.Stats) uint64 { return s.Entries })
	counter("denials_total", "Times that the engine had not enough of a limit.",
		func(s *fleet.Stats) uint64 { return s.Denied })
	counter("data_losses_total", "Times that the data of a shard were found lost.",
		func(s *fleet.Stats) uint64 { return s.Lost })

	c.granted = c.desc("granted_weight", "Weight that is granted to this process, over all limits of a scope.", "scope")
	c.engine = c.desc("engine_info", "What the engine does when its memory is full: it should be noeviction.",
		"maxmemory_policy")
	c.call = c.desc("call_duration_seconds", "How long calls to the engine took, failed ones too.")
	return c
}

// desc describes a metric of this fleet.
func (c *Collector) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("inflight_fleet_"+name, help, labels, prometheus.Labels{"registry": c.registry})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.numbers {
		ch <- n.desc
	}
	ch <- c.granted
	ch <- c.engine
	ch <- c.call
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	for _, n := range c.numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(&s))
	}
	for scope, granted := range s.Granted {
		ch <- prometheus.MustNewConstMetric(c.granted, prometheus.GaugeValue, float64(granted), inflight.Scope(scope).String())
	}
	ch <- prometheus.MustNewConstMetric(c.engine, prometheus.GaugeValue, 1, s.MaxmemoryPolicy)
	ch <- metrics.NewHistogram(c.call, s.Latency)
}

// age is told by the clock of this process alone. The clock of whoever scrapes may be another one.
func age(t time.Time) float64 {
	if t.IsZero() {
		return math.Inf(1)
	}
	return time.Since(t).Seconds()
}
