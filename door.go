package inflight

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// A door takes slots for requests, as its functions say. It is what Middleware and NewTransport have in common.
type door struct {
	acquirer Acquirer
	registry *Registry // the acquirer, if that is what it is: a direct call keeps the options off the heap
	home     *Registry // that of the acquirer's slots, if it is known

	key    func(*http.Request) (Key, error)
	also   func(*http.Request) []Key
	weight func(*http.Request) int
	label  func(*http.Request) string
	wait   time.Duration
}

func newDoor(
	a Acquirer, key func(*http.Request) (Key, error), also func(*http.Request) []Key, weight func(*http.Request) int,
	label func(*http.Request) string, wait time.Duration,
) *door {
	d := &door{acquirer: a, key: key, also: also, weight: weight, label: label, wait: wait}
	d.registry, _ = a.(*Registry)
	d.home = d.registry
	if of, ok := a.(interface{ Registry() *Registry }); ok { // as that of package fleet
		d.home = of.Registry()
	}
	return d
}

var errNoSlot = errors.New("inflight: Acquirer returned neither a slot nor an error")

// enter takes a slot for a request.
func (d *door) enter(r *http.Request) (*Slot, error) {
	k, err := d.key(r)
	if err != nil {
		return nil, &KeyError{err}
	}
	return d.enterAs(r.Context(), k, r)
}

// enterAs takes a slot for a request whose key is known. All user code runs before there is a slot.
func (d *door) enterAs(ctx context.Context, k Key, r *http.Request) (*Slot, error) {
	var weight, label, also Option
	if d.weight != nil {
		weight = Weight(d.weight(r))
	}
	if d.also != nil {
		also = Also(d.also(r)...)
	}
	switch {
	case d.label != nil:
		label = Label(d.label(r))
	case r.URL != nil:
		label = labelRequest(r)
	}
	if d.registry != nil {
		return d.registry.Acquire(ctx, k, MaxWait(d.wait), weight, label, also)
	}
	slot, err := d.acquirer.Acquire(ctx, k, MaxWait(d.wait), weight, label, also)
	if err == nil && (slot == nil || slot.reg == nil) {
		return nil, errNoSlot
	}
	return slot, err
}
