package limitcache_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// Limits come from a table of organisations. When it changes, Invalidate makes the change known at once, to the next
// acquire and, through OnChange, to those that wait.
func Example() {
	var table sync.Map // stands for a database
	table.Store("acme", 1)

	var registry *inflight.Registry
	cache, err := limitcache.New(limitcache.Config{
		Fetch: func(_ context.Context, k inflight.Key) (inflight.Limits, error) {
			limit, ok := table.Load(k.Org)
			if !ok {
				return inflight.Limits{}, limitcache.ErrNotFound
			}
			return inflight.Limits{Org: limit.(int)}, nil
		},
		Default:  inflight.Limits{Org: inflight.Blocked}, // who is not in the table gets nothing
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

	try := func(org string) {
		slot, err := registry.TryAcquire(inflight.Key{Org: org, Model: "glm"})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("admitted", slot.Key()) // and held to the end of the example
	}
	try("acme")
	try("acme")
	try("unknown")

	table.Store("acme", 2)
	cache.InvalidateOrg("acme")
	try("acme")
	// Output:
	// admitted acme/glm
	// inflight: org limit reached for acme/glm: 1 of 1 in use
	// inflight: org limit blocks unknown/glm
	// admitted acme/glm
}
