// Package metrics shows an inflight.Registry to Prometheus.
//
//	prometheus.MustRegister(metrics.NewCollector(reg))
//
// The collector counts nothing itself. It reads the registry when it is scraped, so what it shows is what is, and a
// registry that nobody scrapes pays nothing. No series bears the name of an organisation or a model, so that
// their number does not grow with that of the keys; WithKeys makes an exception for a fixed list.
//
// The folder deploy of the repository has alert rules and a dashboard over these metrics.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inflight-go/inflight"
)

// A Collector shows one registry to Prometheus, under names that begin with inflight_ and with the registry's name as
// label registry. Collectors of registries with different names go well together in one prometheus.Registerer; the
// second of the same name gets a prometheus.AlreadyRegisteredError. Its methods are safe for concurrent use.
//
// Each scrape reads Stats once, and then Keys, which calls the limit function for every live key.
type Collector struct {
	reg        *inflight.Registry
	numbers    []number
	rejected   *prometheus.Desc
	hold, wait *prometheus.Desc
	atLimit    atLimit
	keys       keySeries
}

// A number is a metric that has one value.
type number struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*inflight.Stats) float64
}

// An Option changes what a Collector shows.
type Option func(*Collector)

// NewCollector makes a collector of a registry. It panics if reg is nil.
func NewCollector(reg *inflight.Registry, opts ...Option) *Collector {
	c := &Collector{reg: reg, keys: keySeries{listed: make(map[inflight.Key]string)}}
	for _, opt := range opts {
		opt(c)
	}

	gauge := func(name, help string, value func(*inflight.Stats) float64) {
		c.numbers = append(c.numbers, number{c.desc(name, help), prometheus.GaugeValue, value})
	}
	gauge("slots", "Live slots.", func(s *inflight.Stats) float64 { return float64(s.Holders) })
	gauge("slots_weight", "Weight of the live slots, which is what the limits bound.",
		func(s *inflight.Stats) float64 { return float64(s.InUse) })
	gauge("slots_weight_recent_peak", "The most that slots_weight has been since the sweep before the last one.",
		func(s *inflight.Stats) float64 { return float64(s.RecentPeakInUse) })
	gauge("keys", "Keys with a live slot or a waiter.", func(s *inflight.Stats) float64 { return float64(s.Keys) })
	gauge("waiters", "Acquires that wait.", func(s *inflight.Stats) float64 { return float64(s.Waiters) })
	gauge("slots_per_key_max", "Weight of the live slots of the key that has most.",
		func(s *inflight.Stats) float64 { return float64(s.MaxPerKey) })
	gauge("slots_per_key_max_recent_peak", "The most that slots_per_key_max has been since the sweep before the last one.",
		func(s *inflight.Stats) float64 { return float64(s.RecentPeakPerKey) })
	gauge("slots_long_held", "Live slots held longer than the registry's LongHeld.",
		func(s *inflight.Stats) float64 { return float64(s.LongHeld) })
	gauge("slots_lost", "Live slots whose handle was garbage collected unreleased: they count until they are evicted.",
		func(s *inflight.Stats) float64 { return float64(s.LostHeld) })
	gauge("oldest_slot_seconds", "Age of the oldest live slot, 0 if there is none.",
		func(s *inflight.Stats) float64 { return s.OldestHeld.Seconds() })
	gauge("last_sweep_timestamp_seconds", "Unix time of the last sweep, 0 before the first.",
		func(s *inflight.Stats) float64 { return unixSeconds(s.LastSweep) })

	counter := func(name, help string, value func(*inflight.Stats) uint64) {
		c.numbers = append(c.numbers, number{
			c.desc(name, help), prometheus.CounterValue,
			func(s *inflight.Stats) float64 { return float64(value(s)) },
		})
	}
	counter("admitted_total", "Slots handed out.", func(s *inflight.Stats) uint64 { return s.Admitted })
	counter("released_total", "Slots given back.", func(s *inflight.Stats) uint64 { return s.Released })
	counter("evicted_total", "Slots freed by force.", func(s *inflight.Stats) uint64 { return s.Evicted })
	counter("lost_total", "Slots whose handle was garbage collected unreleased.",
		func(s *inflight.Stats) uint64 { return s.Lost })
	counter("reclaimed_total", "Lost slots that were freed.", func(s *inflight.Stats) uint64 { return s.Reclaimed })
	counter("waited_total", "Waits that ended, granted or not.", func(s *inflight.Stats) uint64 { return s.Waited })
	counter("canceled_total", "Acquires that failed because their context had ended.",
		func(s *inflight.Stats) uint64 { return s.Canceled })
	counter("closed_total", "Acquires that failed because the registry was closed.",
		func(s *inflight.Stats) uint64 { return s.Closed })
	counter("sweeps_total", "Sweeps done.", func(s *inflight.Stats) uint64 { return s.Sweeps })

	c.rejected = c.desc("rejected_total", "Acquires refused, by the scope of the limit and the reason.", "scope", "reason")
	c.hold = c.desc("hold_seconds", "How long slots were held, of those that have ended.")
	c.wait = c.desc("wait_seconds", "How long acquires waited, of those that had to.")
	c.atLimit.init(c.desc)
	c.keys.init(c.desc)
	return c
}

// desc describes a metric of this registry.
func (c *Collector) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("inflight_"+name, help, labels, prometheus.Labels{"registry": c.reg.Name()})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.numbers {
		ch <- n.desc
	}
	ch <- c.rejected
	ch <- c.hold
	ch <- c.wait
	c.atLimit.describe(ch)
	c.keys.describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.reg.Stats()
	for _, n := range c.numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(&s))
	}
	// All combinations are always there: a counter that first appears as 1 has no rate.
	for scope := range inflight.ScopeTotal + 1 {
		r := s.Rejected[scope]
		reject := func(reason string, n uint64) {
			ch <- prometheus.MustNewConstMetric(c.rejected, prometheus.CounterValue, float64(n), scope.String(), reason)
		}
		reject("full", r.Full)
		reject("too_heavy", r.TooHeavy)
		reject("timed_out", r.TimedOut)
		reject("queue_full", r.QueueFull)
	}
	ch <- NewHistogram(c.hold, s.Hold)
	ch <- NewHistogram(c.wait, s.Wait)
	live := c.reg.Keys(0)
	c.atLimit.collect(ch, live)
	c.keys.collect(ch, live)
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
