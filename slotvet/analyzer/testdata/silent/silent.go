// Package silent has correct code, of which nothing may be reported: one function for each way to be right.
package silent

import (
	"context"
	"errors"

	"github.com/inflight-go/inflight"
)

var (
	key    = inflight.Key{Org: "acme", Model: "glm"}
	errX   = errors.New("x")
	global *inflight.Slot
)

func work() error { return nil }

func release(s *inflight.Slot) { s.Release() }

type holder struct {
	slot *inflight.Slot
	err  error
}

type acquirer interface {
	Acquire(ctx context.Context, k inflight.Key, opts ...inflight.Option) (*inflight.Slot, error)
}
