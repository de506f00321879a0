// Package wrap has functions that return slots, for callers in other packages.
package wrap

import (
	"context"
	"sync"

	"github.com/inflight-go/inflight"
)

type Gate struct {
	Registry *inflight.Registry
	mu       sync.Mutex
	current  *inflight.Slot
	all      map[string]*inflight.Slot
}

// Enter hands over what it takes.
func (g *Gate) Enter(ctx context.Context, org string) (*inflight.Slot, error) { // want Enter:`handsOver\(1\)`
	slot, err := g.Registry.Acquire(ctx, inflight.Key{Org: org})
	if err != nil {
		return nil, err
	}
	return slot, nil
}

// Twice calls a function that comes later in the file.
func (g *Gate) Twice(ctx context.Context) (_ *inflight.Slot, err error) { return g.late(ctx) } // want Twice:`handsOver\(1\)`

func (g *Gate) late(ctx context.Context) (*inflight.Slot, error) { return g.Enter(ctx, "late") } // want late:`handsOver\(1\)`

// Slot shows what somebody else holds.
func (g *Gate) Slot() *inflight.Slot { return g.current }

// Find shows it too.
func (g *Gate) Find(org string) (*inflight.Slot, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slot, ok := g.all[org]
	return slot, ok
}

// Hold keeps what it returns and releases it itself.
func (g *Gate) Hold(org string) *inflight.Slot {
	slot, err := g.Registry.TryAcquire(inflight.Key{Org: org})
	if err != nil {
		return nil
	}
	g.all[org] = slot
	return slot
}

// Bound ends its slot with the context.
func (g *Gate) Bound(ctx context.Context) *inflight.Slot {
	slot, err := g.Registry.Acquire(ctx, inflight.Key{})
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, slot.Release)
	return slot
}

// Guarded may give the slot back in its deferred closure, and hands it over otherwise.
func (g *Gate) Guarded(ctx context.Context, work func() error) (slot *inflight.Slot, err error) { // want Guarded:`handsOver\(1\)`
	if slot, err = g.Registry.Acquire(ctx, inflight.Key{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			slot.Release()
		}
	}()
	return slot, work()
}

// GuardedBefore does the same the other way round.
func (g *Gate) GuardedBefore(work func() error) (slot *inflight.Slot, err error) { // want GuardedBefore:`handsOver\(1\)`
	defer func() {
		if err != nil {
			slot.Release()
		}
	}()
	if slot, err = g.Registry.TryAcquire(inflight.Key{}); err == nil {
		err = work()
	}
	return slot, err
}

// Last returns a slot that is released by then.
func (g *Gate) Last() *inflight.Slot {
	slot, _ := g.Registry.TryAcquire(inflight.Key{})
	defer slot.Release()
	return slot
}

// Next hands over what was sent to it.
func Next(slots <-chan *inflight.Slot) *inflight.Slot { return <-slots } // want Next:`handsOver\(1\)`

// Must hands over what it is given, unless that failed.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func Fatal(v any) { panic(v) }
