package leaks

import "github.com/inflight-go/inflight"

func ignoredTooFarAway(reg *inflight.Registry) {
	//slotvet:ignore the line below

	reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
	reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func ignoredWithoutReason(reg *inflight.Registry) {
	// want +1 `//slotvet:ignore needs a reason`
	//slotvet:ignore
	reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func ignoredOnItsLineOnly(reg *inflight.Registry) {
	reg.TryAcquire(key) //slotvet:ignore held for ever
	reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func ignoredByAnotherWord(reg *inflight.Registry) {
	//slotvet:ignored for no reason
	reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}
