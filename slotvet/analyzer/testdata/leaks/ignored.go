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
