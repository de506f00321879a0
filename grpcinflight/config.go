package grpcinflight

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/inflight-go/inflight"
)

// A Config says how interceptors take slots. Its functions are called for each call, by many goroutines at once, before
// the call is admitted; if one panics nothing was taken. They get the full method, such as "/pkg.Service/Method", and
// the metadata: on a server that which came in, on a client that which goes out. It may be nil.
type Config struct {
	// Key names the key of a call. Required. An error refuses the call with InvalidArgument; a *inflight.KeyError is
	// around it.
	Key func(ctx context.Context, fullMethod string, md metadata.MD) (inflight.Key, error)

	// Also names further keys that the slot counts against. May be nil.
	Also func(ctx context.Context, fullMethod string, md metadata.MD) []inflight.Key

	// Weight is the weight of the slot; nil means 1. A negative weight is an error: Internal.
	Weight func(ctx context.Context, fullMethod string, md metadata.MD) int

	// Label names the slot for people; nil means the full method.
	Label func(ctx context.Context, fullMethod string, md metadata.MD) string

	// Skip says which calls are not limited and not counted, such as health checks. May be nil. On a client inside a
	// server that shares its registry, inflight.FromContext(ctx) is the slot of the call that is being served: skip
	// if it covers the one to be made.
	Skip func(ctx context.Context, fullMethod string, md metadata.MD) bool

	// Wait bounds how long a call waits for room, besides its context. 0 and negative: it is refused at once.
	Wait time.Duration
}

var errNoSlot = errors.New("inflight: Acquirer returned neither a slot nor an error")

// A door takes slots for calls, as the config says.
type door struct {
	acquirer inflight.Acquirer
	cfg      Config
}

// newDoor panics if the program is wrong, in the name of the constructor.
func newDoor(constructor string, a inflight.Acquirer, cfg Config) *door {
	if cfg.Key == nil {
		panic("grpcinflight: " + constructor + ": Config.Key is nil")
	}
	if a == nil {
		panic("grpcinflight: " + constructor + ": Acquirer is nil")
	}
	return &door{a, cfg}
}

// enter takes a slot for a call. The slot is nil without error if the call is to be skipped. All user code runs before
// there is a slot.
func (d *door) enter(ctx context.Context, method string, md metadata.MD) (*inflight.Slot, *refusalError) {
	if d.cfg.Skip != nil && d.cfg.Skip(ctx, method, md) {
		return nil, nil
	}
	key, err := d.cfg.Key(ctx, method, md)
	if err != nil {
		return nil, refuse(&inflight.KeyError{Err: err})
	}
	label := method
	if d.cfg.Label != nil {
		label = d.cfg.Label(ctx, method, md)
	}
	opts := append(make([]inflight.Option, 0, 4), inflight.MaxWait(d.cfg.Wait), inflight.Label(label))
	if d.cfg.Weight != nil {
		opts = append(opts, inflight.Weight(d.cfg.Weight(ctx, method, md)))
	}
	if d.cfg.Also != nil {
		opts = append(opts, inflight.Also(d.cfg.Also(ctx, method, md)...))
	}
	slot, err := d.acquirer.Acquire(ctx, key, opts...)
	if err == nil && slot == nil {
		err = errNoSlot
	}
	if err != nil {
		return nil, refuse(err)
	}
	return slot, nil
}
