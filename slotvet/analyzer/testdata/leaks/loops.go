package leaks

import (
	"context"

	"github.com/inflight-go/inflight"
)

func deferInLoop(ctx context.Context, reg *inflight.Registry, jobs []int) error {
	for range jobs {
		slot, err := reg.Acquire(ctx, key)
		if err != nil {
			return err
		}
		defer slot.Release() // want `slot is deferred in a loop, so the slots pile up until the function returns: release each in its round, or make the body of the loop a function`
		work()
	}
	return nil
}

func deferredClosureInLoop(ctx context.Context, reg *inflight.Registry) error {
	for i := 0; i < 3; i++ {
		slot, err := reg.Acquire(ctx, key)
		if err != nil {
			return err
		}
		defer func() { slot.Release() }() // want `slot is deferred in a loop`
	}
	return nil
}

func deferInLoopByGoto(reg *inflight.Registry) {
again:
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	defer slot.Release() // want `slot is deferred in a loop`
	goto again
}

func notReleasedInLoop(ctx context.Context, reg *inflight.Registry) {
	for {
		slot, err := reg.Acquire(ctx, key) // want `slot is not released before the loop takes the next one: call slot.Release\(\) in each round`
		if err != nil {
			continue
		}
		slot.Key()
	}
}

func continuesWithoutRelease(ctx context.Context, reg *inflight.Registry) {
	for {
		slot, err := reg.Acquire(ctx, key) // want `slot is not released before the loop takes the next one`
		if err != nil {
			panic(err)
		}
		if work() != nil {
			continue
		}
		slot.Release()
	}
}

func assignedOver(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return err
	}
	slot, err = reg.TryAcquire(key) // want `slot is assigned over while it holds the slot taken on line 66: call slot.Release\(\) first`
	defer slot.Release()
	return err
}

func assignedNil(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	slot = nil // want `slot is assigned over while it holds the slot taken on line 76`
	slot.Release()
}

func assignedOverOnOnePath(reg *inflight.Registry, other *inflight.Slot) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	if other.Weight() > 1 {
		slot = other // want `slot is assigned over while it holds the slot taken on line 85`
	}
	slot.Release()
}

func aliasAssignedOver(reg *inflight.Registry) {
	var last *inflight.Slot
	for {
		slot, err := reg.TryAcquire(key)
		if err != nil {
			break
		}
		last = slot // want `slot is assigned over while it holds the slot taken on line 98`
	}
	last.Release()
}
