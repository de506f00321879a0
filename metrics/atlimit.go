package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inflight-go/inflight"
)

// atLimit tells how many keys are at their limit, and for how long one of them has been there, without naming any. An
// alert on the number alone would not do: where there are many keys, some key or other is always at its limit.
type atLimit struct {
	keys, seconds *prometheus.Desc

	mu   sync.Mutex
	last time.Time                  // the last scrape
	seen map[inflight.Key]*sighting // the keys at their limit, each as long as it is
}

// A sighting says from when to when scrapes have found a key at its limit.
type sighting struct{ first, last time.Time }

// gap is how long a key may be found below its limit and still count as being there all the time. A key that is under
// pressure is below it again and again, from when one of its many slots is given back to when somebody asks for it.
const gap = 90 * time.Second

// blind is how long nobody may have scraped for the time between to count. It is how long Prometheus, too, takes a value
// to hold.
const blind = 5 * time.Minute

func (a *atLimit) init(desc func(name, help string, labels ...string) *prometheus.Desc) {
	a.keys = desc("keys_at_limit", "Keys whose own limit has no room.")
	a.seconds = desc("key_at_limit_seconds",
		"How long scrapes have found the same key at its own limit, of the key with which that has gone on for longest.")
	a.seen = make(map[inflight.Key]*sighting)
}

func (a *atLimit) describe(ch chan<- *prometheus.Desc) {
	ch <- a.keys
	ch <- a.seconds
}

func (a *atLimit) collect(ch chan<- prometheus.Metric, live []inflight.KeyInfo) {
	keys, longest := a.note(live, time.Now())
	ch <- prometheus.MustNewConstMetric(a.keys, prometheus.GaugeValue, float64(keys))
	ch <- prometheus.MustNewConstMetric(a.seconds, prometheus.GaugeValue, longest.Seconds())
}

// note takes down who is at its limit, and returns how many are and the longest time for which one has been.
func (a *atLimit) note(live []inflight.KeyInfo, now time.Time) (keys int, longest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.last) > blind {
		clear(a.seen)
	}
	a.last = now
	for _, info := range live {
		if !known(info) || hasRoom(info) {
			continue
		}
		keys++
		s := a.seen[info.Key]
		if s == nil {
			s = &sighting{first: now}
			a.seen[info.Key] = s
		}
		s.last = now
	}
	for k, s := range a.seen {
		if now.Sub(s.last) > gap {
			delete(a.seen, k)
			continue
		}
		longest = max(longest, s.last.Sub(s.first))
	}
	return keys, longest
}

// hasRoom reports whether one more slot of the weight that those of the key have on average would be let in.
func hasRoom(k inflight.KeyInfo) bool {
	room, slots := float64(k.Limit)-float64(k.InUse), float64(k.Holders)
	return room > 0 && room*slots >= float64(k.InUse)
}
