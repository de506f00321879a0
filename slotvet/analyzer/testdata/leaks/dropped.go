package leaks

import (
	"context"
	"net/http"

	"github.com/inflight-go/inflight"

	"slots.test/wrap"
)

func statement(reg *inflight.Registry) {
	reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped and counts for ever: assign it and defer its Release`
}

func statementOfAcquire(ctx context.Context, reg *inflight.Registry) {
	reg.Acquire(ctx, key) // want `the slot of reg.Acquire is dropped`
}

func goStatement(reg *inflight.Registry) {
	go reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func deferStatement(reg *inflight.Registry) {
	defer reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func blank(reg *inflight.Registry) error {
	_, err := reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
	return err
}

func blankChecked(reg *inflight.Registry) error {
	if _, err := reg.TryAcquire(key); err != nil { // want `the slot of reg.TryAcquire is dropped`
		return err
	}
	return work()
}

func bothBlank(reg *inflight.Registry) {
	_, _ = reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func blankForEver(reg *inflight.Registry) {
	_, _ = reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
	select {}
}

func blankInLoop(reg *inflight.Registry) {
	for {
		_, err := reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
		if err != nil {
			panic(err)
		}
	}
}

func blankVariable(reg *inflight.Registry) {
	var _, _ = reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
}

func onlyItsKey(reg *inflight.Registry) inflight.Key {
	return wrap.Must(reg.TryAcquire(key)).Key() // want `the slot of wrap.Must is dropped`
}

func takeStatement(r *http.Request) {
	inflight.Take(r.Context()) // want `the slot of inflight.Take is dropped`
}

func takeCompared(r *http.Request) bool {
	return inflight.Take(r.Context()) != nil // want `the slot of inflight.Take is dropped`
}

func throughInterface(ctx context.Context, a acquirer) {
	_, _ = a.Acquire(ctx, key) // want `the slot of a.Acquire is dropped`
}

func throughAnyInterface(r interface {
	Reserve() (*inflight.Slot, error)
}) {
	_, _ = r.Reserve() // want `the slot of r.Reserve is dropped`
}

func throughLibraryInterface(ctx context.Context, a inflight.Acquirer) {
	a.Acquire(ctx, key) // want `the slot of a.Acquire is dropped`
}

func ofFleet(ctx context.Context, f *fleet) {
	f.Acquire(ctx, key) // want `the slot of f.Acquire is dropped`
}

func methodExpression(reg *inflight.Registry) {
	(*inflight.Registry).TryAcquire(reg, key) // want `the slot of .* is dropped`
}

func functionValue(try func(inflight.Key) (*inflight.Slot, error)) {
	try(key) // want `the slot of try is dropped`
}

func functionOfSlice(tries []func(inflight.Key) (*inflight.Slot, error)) {
	tries[0](key) // want `the slot of tries\[0\] is dropped`
}

func functionValueByName(acquire func() *inflight.Slot) {
	acquire() // want `the slot of acquire is dropped`
}

func wrapper(ctx context.Context, g *wrap.Gate) {
	g.Enter(ctx, "acme") // want `the slot of g.Enter is dropped`
}

func wrapperOfWrapper(ctx context.Context, g *wrap.Gate) {
	_, _ = g.Twice(ctx) // want `the slot of g.Twice is dropped`
}

func wrapperWithGuard(ctx context.Context, g *wrap.Gate) {
	_, _ = g.Guarded(ctx, work) // want `the slot of g.Guarded is dropped`
}

func wrapperOfReceive(slots chan *inflight.Slot) {
	wrap.Next(slots) // want `the slot of wrap.Next is dropped`
}

func ownClosure(reg *inflight.Registry) {
	hold := func() *inflight.Slot {
		slot, err := reg.TryAcquire(key)
		if err != nil {
			panic(err)
		}
		return slot
	}
	hold() // want `the slot of hold is dropped`
}

func calledLiteral(reg *inflight.Registry) {
	_ = func() *inflight.Slot { return wrap.Must(reg.TryAcquire(key)) }() // want `the slot of .* is dropped`
}

func inLiteral(reg *inflight.Registry) func() {
	return func() {
		reg.TryAcquire(key) // want `the slot of reg.TryAcquire is dropped`
	}
}
