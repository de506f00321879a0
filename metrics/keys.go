package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inflight-go/inflight"
)

// WithKeys adds series for these keys. They have a label key, as Key.String writes it, and what all other keys have
// together is under key="other", which no key is written as: each of them has a slash. They are
//
//	inflight_key_slots          live slots
//	inflight_key_slots_weight   their weight
//	inflight_key_waiters        acquires that wait and need the key
//	inflight_key_limit          the limit of the key itself, +Inf if it has none; only while the key is in use, and not for other
//	inflight_key_granted        what of it is granted to this process; only where limits are shared, and as the limit
//
// A slot that counts against several keys is seen at each of them.
func WithKeys(list ...inflight.Key) Option {
	return func(c *Collector) {
		for _, k := range list {
			c.keys.listed[k] = k.String()
		}
	}
}

// keySeries are the metrics of WithKeys.
type keySeries struct {
	listed map[inflight.Key]string // the label of each

	slots, weight, waiters, limit, granted *prometheus.Desc
}

func (s *keySeries) init(desc func(name, help string, labels ...string) *prometheus.Desc) {
	s.slots = desc("key_slots", "Live slots of the key.", "key")
	s.weight = desc("key_slots_weight", "Weight of the live slots of the key.", "key")
	s.waiters = desc("key_waiters", "Acquires that wait and need the key.", "key")
	s.limit = desc("key_limit", "Limit of the key's weight, while it is in use.", "key")
	s.granted = desc("key_granted", "Part of the limit that is granted to this process, while the key is in use.", "key")
}

func (s *keySeries) describe(ch chan<- *prometheus.Desc) {
	if len(s.listed) == 0 {
		return
	}
	for _, d := range []*prometheus.Desc{s.slots, s.weight, s.waiters, s.limit, s.granted} {
		ch <- d
	}
}

func (s *keySeries) collect(ch chan<- prometheus.Metric, live []inflight.KeyInfo) {
	if len(s.listed) == 0 {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
	}
	var other inflight.KeyInfo
	found := make(map[inflight.Key]inflight.KeyInfo, len(s.listed))
	for _, info := range live {
		if label, ok := s.listed[info.Key]; ok {
			found[info.Key] = info
			if known(info) {
				gauge(s.limit, drawn(info.Limit), label)
			}
			if info.Leased && info.Limit != inflight.Unlimited {
				gauge(s.granted, float64(info.Granted), label)
			}
			continue
		}
		other.Holders += info.Holders
		other.InUse += info.InUse
		other.Waiters += info.Waiters
	}
	show := func(label string, info inflight.KeyInfo) {
		gauge(s.slots, float64(info.Holders), label)
		gauge(s.weight, float64(info.InUse), label)
		gauge(s.waiters, float64(info.Waiters), label)
	}
	for k, label := range s.listed {
		show(label, found[k])
	}
	show("other", other)
}

// drawn returns a limit as people draw it: +Inf for none, 0 for one that admits nothing.
func drawn(limit int) float64 {
	if limit == inflight.Unlimited {
		return math.Inf(1)
	}
	return float64(max(limit, 0))
}

// known tells whether the limit function gave a limit: if it panics, Registry.Keys says 0, which else no limit is.
func known(info inflight.KeyInfo) bool { return info.Limit != 0 }
