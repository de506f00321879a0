// Package leaks has code that must be reported, one function for each way to lose a slot.
package leaks

import (
	"context"
	"errors"

	"github.com/inflight-go/inflight"
)

var (
	key  = inflight.Key{Org: "acme", Model: "glm"}
	errX = errors.New("x")
)

func work() error { return nil }

func use(any) {}

type acquirer interface {
	Acquire(ctx context.Context, k inflight.Key, opts ...inflight.Option) (*inflight.Slot, error)
}

// fleet is another kind of registry.
type fleet struct{ slots chan *inflight.Slot }

func (f *fleet) Acquire(context.Context, inflight.Key) (*inflight.Slot, error) { // want Acquire:`handsOver\(1\)`
	select {
	case s := <-f.slots:
		return s, nil
	default:
		return nil, errX
	}
}
