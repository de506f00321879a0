// Package inflight caps how many requests each customer has in flight on each model, and never loses count.
//
// A [Registry] holds, under one lock, the set of live holders of each (org, model) key. TryAcquire and Acquire hand out
// a [Slot] while the limits of the key have room; the slot counts until it is released, however long that takes:
//
//	reg, err := inflight.New(inflight.Config{
//		Limits: inflight.Fixed(inflight.Limits{Key: 64, Org: 300, Total: 1024}),
//	})
//	...
//	slot, err := reg.TryAcquire(inflight.Key{Org: "acme", Model: "glm"})
//	if err != nil {
//		return err // errors.Is(err, inflight.ErrLimit): refused, and nothing was counted
//	}
//	defer slot.Release()
//
// [Middleware] holds a slot for a net/http handler until it has returned, streams and hijacked connections included;
// [NewTransport] holds one for an http.Client until the response body has been read.
//
// # What it is not
//
// It is not a rate limiter: it bounds what runs at once, not what begins per second. It is not a cache: no count ever
// expires, and a slot that is never released is reported by a sweep, not papered over. It does not queue unless asked
// to: HTTP requests are refused at once by default. And by itself it counts in one process: the module fleet makes the
// limits of a registry hold over many.
//
// # Waiting
//
// Acquire waits first come, first served, at one limit at a time: the first that has no room in the order key, org,
// model, total, then those of each Also key. A waiter reserves nothing. A heavy waiter at the head of a queue holds
// back lighter ones behind it, and TryAcquire does not overtake those who wait at a limit that it needs.
//
// # Concurrency
//
// All methods are safe for concurrent use. No code of the caller, be it a limit function, a logger, a hook or a
// context, ever runs under the registry's lock.
package inflight
