package silent

import (
	"context"
	"net/http"
	"sync"

	"github.com/inflight-go/inflight"

	"slots.test/wrap"
)

func returnedAtOnce(reg *inflight.Registry) (*inflight.Slot, error) { return reg.TryAcquire(key) } // want returnedAtOnce:`handsOver\(1\)`

func returnedLater(reg *inflight.Registry) (*inflight.Slot, error) { // want returnedLater:`handsOver\(1\)`
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return nil, err
	}
	return slot, nil
}

func returnedByName(reg *inflight.Registry) (slot *inflight.Slot, err error) { // want returnedByName:`handsOver\(1\)`
	slot, err = reg.TryAcquire(key)
	return
}

func returnedInStruct(reg *inflight.Registry) (*holder, error) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return nil, err
	}
	return &holder{slot: slot}, nil
}

func returnedAsRelease(reg *inflight.Registry) (func(), error) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}

func storedInField(h *holder, reg *inflight.Registry) (err error) {
	h.slot, err = reg.TryAcquire(key)
	return err
}

func storedInFieldLater(h *holder, reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err == nil {
		h.slot = slot
	}
}

func storedInMap(m map[string]*inflight.Slot, reg *inflight.Registry) {
	if slot, err := reg.TryAcquire(key); err == nil {
		m["a"] = slot
	}
}

func storedAsMapKey(m map[*inflight.Slot]bool, reg *inflight.Registry) {
	if slot, err := reg.TryAcquire(key); err == nil {
		m[slot] = true
	}
}

func storedInSlice(reg *inflight.Registry) (slots []*inflight.Slot) {
	for {
		slot, err := reg.TryAcquire(key)
		if err != nil {
			return slots
		}
		slots = append(slots, slot)
	}
}

func storedInGlobal(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	global = slot
}

func storedBehindPointer(to **inflight.Slot, reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	*to = slot
}

func storedInSyncMap(m *sync.Map, reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	m.Store("a", slot)
}

func storedByClosure(reg *inflight.Registry, group *sync.WaitGroup) *inflight.Slot {
	var slot *inflight.Slot
	group.Go(func() { slot, _ = reg.TryAcquire(key) })
	group.Wait()
	return slot
}

func sent(reg *inflight.Registry, slots chan<- *inflight.Slot) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	slots <- slot
}

func sentInStruct(reg *inflight.Registry, results chan<- holder) {
	slot, err := reg.TryAcquire(key)
	results <- holder{slot, err}
}

func sentOrReleased(ctx context.Context, reg *inflight.Registry, slots chan<- *inflight.Slot) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	select {
	case slots <- slot:
	case <-ctx.Done():
		slot.Release()
	}
}

func capturedByGoroutine(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	go func() {
		defer slot.Release()
		work()
	}()
}

func capturedByGoroutineInLoop(ctx context.Context, reg *inflight.Registry, jobs []int) {
	for range jobs {
		slot, err := reg.Acquire(ctx, key)
		if err != nil {
			return
		}
		go func() {
			defer slot.Release()
			work()
		}()
	}
}

func functionPerRound(ctx context.Context, reg *inflight.Registry, jobs []int) error {
	for range jobs {
		if err := func() error {
			slot, err := reg.Acquire(ctx, key)
			if err != nil {
				return err
			}
			defer slot.Release()
			return work()
		}(); err != nil {
			return err
		}
	}
	return nil
}

func deferredInLoopOnTheWayOut(ctx context.Context, reg *inflight.Registry) error {
	for {
		slot, err := reg.Acquire(ctx, key)
		if err != nil {
			continue
		}
		defer slot.Release()
		return work()
	}
}

func releasedEachRound(ctx context.Context, reg *inflight.Registry, jobs []int) error {
	for range jobs {
		slot, err := reg.Acquire(ctx, key)
		if err != nil {
			return err
		}
		work()
		slot.Release()
	}
	return nil
}

func assignedOverAfterRelease(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	slot.Release()
	slot, err = reg.TryAcquire(key)
	if err == nil {
		slot.Release()
	}
}

func assignedOverAfterDefer(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	defer slot.Release()
	slot, _ = reg.TryAcquire(key)
	defer slot.Release()
}

func passedOn(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	release(slot)
}

func passedOnAtOnce(reg *inflight.Registry) { both(reg.TryAcquire(key)) }

func both(slot *inflight.Slot, _ error) { slot.Release() }

func throughInterface(ctx context.Context, a acquirer) error {
	slot, err := a.Acquire(ctx, key)
	if err != nil {
		return err
	}
	defer slot.Release()
	return work()
}

func shown(r *http.Request) { _ = inflight.FromContext(r.Context()).Key() }

func accessor(g *wrap.Gate) inflight.Key {
	slot := g.Slot()
	return slot.Key()
}

func accessorWithOK(g *wrap.Gate) int {
	slot, ok := g.Find("acme")
	if !ok {
		return 0
	}
	return slot.Weight()
}

func accessorBehindInterface(g interface{ Slot() *inflight.Slot }) inflight.Key {
	return g.Slot().Key()
}

func accessorInPlaceOfAnother(reg *inflight.Registry, g *wrap.Gate) {
	show := func() *inflight.Slot { return g.Slot() }
	show()
	show = func() *inflight.Slot { return wrap.Must(reg.TryAcquire(key)) }
}

func keptByCallee(ctx context.Context, g *wrap.Gate) {
	g.Hold("acme")
	g.Bound(ctx)
}

func received(slots <-chan *inflight.Slot) {
	<-slots
	slot := <-slots
	println(slot.ID())
}

func ignoredOnItsLine(reg *inflight.Registry) {
	reg.TryAcquire(key) //slotvet:ignore it is held to the end of the process
}

func ignoredOnTheLineBefore(reg *inflight.Registry) {
	//slotvet:ignore it is held to the end of the process,
	// which is long
	_, _ = reg.TryAcquire(key)
}

// ignoredFunction holds what it takes.
//
//slotvet:ignore it is held to the end of the process
func ignoredFunction(reg *inflight.Registry) {
	work()
	work()
	reg.TryAcquire(key)
}
