//slotvet:ignore the slots of this file are held to the end of the process
package silent

import "github.com/inflight-go/inflight"

func ignoredFile(reg *inflight.Registry) {
	reg.TryAcquire(key)
}
