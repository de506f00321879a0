// Package fix has leaks that a deferred release mends, and some where it would not be safe.
package fix

import (
	"net/http"

	"github.com/inflight-go/inflight"
)

var key = inflight.Key{Org: "acme", Model: "glm"}

func work() error { return nil }

func afterCheck(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released`
	if err != nil {
		return err
	} // refused
	println(slot.ID())
	return work()
}

func withoutCheck(r *http.Request) error {
	slot := inflight.Take(r.Context()) // want `slot is not released`
	println(slot)
	return work()
}

func checkOfSomethingElse(reg *inflight.Registry) error {
	s, err := reg.TryAcquire(key) // want `s is not released`
	if s.Weight() > 1 {
		return err
	}
	return work()
}

func partly(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released`
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	slot.Release()
	return nil
}

func inIf(reg *inflight.Registry) {
	if slot, err := reg.TryAcquire(key); err == nil { // want `slot is not released`
		println(slot.ID())
	}
}

func inElse(reg *inflight.Registry) {
	if slot, err := reg.TryAcquire(key); err != nil { // want `slot is not released`
		println(err)
	} else {
		println(slot.ID())
	}
}

func inCase(reg *inflight.Registry, n int) {
	switch n {
	case 1:
		slot, err := reg.TryAcquire(key) // want `slot is not released`
		if err == nil {
			println(slot.ID())
		}
	}
}

func inFunctionOfLoop(reg *inflight.Registry) {
	for range 3 {
		func() {
			slot, err := reg.TryAcquire(key) // want `slot is not released`
			if err != nil {
				return
			}
			println(slot.ID())
		}()
	}
}

func blank(reg *inflight.Registry) error {
	_, err := reg.TryAcquire(key) // want `is dropped`
	if err != nil {
		return err
	}
	return work()
}

func blankButNameIsTaken(reg *inflight.Registry, slot int) error {
	_, err := reg.TryAcquire(key) // want `is dropped`
	return err
}

func blankOfTwo(reg *inflight.Registry) (err error) {
	_, err = reg.TryAcquire(key) // want `is dropped`
	return err
}

func returnedElsewhere(reg *inflight.Registry) *inflight.Slot { // want returnedElsewhere:`handsOver`
	slot, err := reg.TryAcquire(key) // want `slot is not released`
	if err != nil || work() != nil {
		return nil
	}
	return slot
}

func keptElsewhere(reg *inflight.Registry, m map[string]*inflight.Slot) {
	slot, err := reg.TryAcquire(key) // want `slot is not released`
	if err != nil || work() != nil {
		return
	}
	m["a"] = slot
}

func inLoop(reg *inflight.Registry) {
	for range 3 {
		slot, err := reg.TryAcquire(key) // want `slot is not released`
		if err != nil || slot.Weight() > 1 {
			break
		}
		slot.Release()
	}
}

func oneLine(reg *inflight.Registry) { slot, _ := reg.TryAcquire(key); println(slot.ID()) } // want `slot is not released`

func inLoopByGoto(reg *inflight.Registry) {
again:
	slot, err := reg.TryAcquire(key) // want `slot is not released`
	if err != nil || slot.Weight() > 1 {
		return
	}
	goto again
}

func inIfOfSomethingElse(reg *inflight.Registry) {
	if slot, err := reg.TryAcquire(key); work() != nil { // want `slot is not released`
		println(slot.ID(), err)
	}
}

func contextPassedOn(reg *inflight.Registry, r *http.Request, next http.Handler) {
	slot, err := reg.TryAcquire(key) // want `slot is not released`
	if err != nil {
		return
	}
	next.ServeHTTP(nil, r.WithContext(slot.Context(r.Context())))
}

func guessed(reserve func() (*inflight.Slot, error)) {
	slot, err := reserve() // want `slot is not released`
	if err != nil {
		return
	}
	println(slot.ID())
}
