package fleetmetrics

import "github.com/inflight-go/inflight/fleet"

// NewCollectorOf shows what stats returns.
func NewCollectorOf(registry string, stats func() fleet.Stats) *Collector {
	return newCollector(registry, stats)
}
