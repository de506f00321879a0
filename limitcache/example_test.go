package limitcache_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// Limits are set per organisation. When one changes, InvalidateOrg makes it known at once: to the next acquire and, through
// OnChange, to those that wait.
func Example() {
	var acme atomic.Int64 // stands for a database
	acme.Store(1)

	var registry *inflight.Registry
	cache, err := limitcache.New(limitcache.Config{
		Fetch: func(_ context.Context, k inflight.Key) (inflight.Limits, error) {
			if k.Org != "acme" {
				return inflight.Limits{}, limitcache.ErrNotFound
			}
			return inflight.Limits{Org: int(acme.Load())}, nil
		},
		Default:  inflight.Limits{Org: inflight.Blocked}, // who has no limit set gets nothing
		OnChange: func() { registry.LimitsChanged() },
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = cache.Close() }()
	registry, err = inflight.New(inflight.Config{Limits: cache.Limits})
	if err != nil {
		panic(err)
	}
	defer func() { _ = registry.Close() }()

	var held []*inflight.Slot
	defer func() {
		for _, slot := range held {
			slot.Release()
		}
	}()
	try := func(org string) {
		slot, err := registry.TryAcquire(inflight.Key{Org: org, Model: "glm"})
		if err != nil {
			fmt.Println(err)
			return
		}
		held = append(held, slot)
		fmt.Println("admitted", slot.Key())
	}
	try("acme")
	try("acme")
	try("unknown")

	acme.Store(2)
	cache.InvalidateOrg("acme")
	try("acme")
	// Output:
	// admitted acme/glm
	// inflight: org limit reached for acme/glm: 1 of 1 in use
	// inflight: org limit blocks unknown/glm
	// admitted acme/glm
}
