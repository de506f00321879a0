package inflight

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
)

// Context returns a child of parent that carries the slot, for FromContext and Take, and ends with it: by Release
// (cause ErrReleased), Evict (ErrEvicted), MaxHold (ErrHeldTooLong) or Cancel (its cause). Its error is then
// context.Canceled. The context of a slot that has ended is ended already.
//
// It costs next to nothing until something asks for its Done channel. While it or a context made from it is in use, the
// slot is not seen as lost; a child that is never cancelled counts as in use, for that is how package context keeps it.
func (s *Slot) Context(parent context.Context) context.Context {
	if parent == nil {
		panic("inflight: Slot.Context: nil parent")
	}
	return &slotContext{Context: parent, slot: s}
}

// FromContext returns the slot that the context carries, the innermost if there are several, and nil if there is none.
// It may have ended.
func FromContext(ctx context.Context) *Slot {
	s, _ := ctx.Value(slotKey{}).(*Slot)
	return s
}

// Take takes the slot over from the middleware, which will then not release it: the caller must, also if it is from
// another goroutine and after the handler has returned. Take returns nil if the context carries no slot, or if the
// slot was taken already, or if the handler has returned.
func Take(ctx context.Context) *Slot {
	s := FromContext(ctx)
	if s == nil || !s.taken.CompareAndSwap(false, true) {
		return nil
	}
	return s
}

type slotKey struct{}

// A slotContext is the context of a slot. Most handlers never look at Done, so what can be cancelled is made on demand.
type slotContext struct {
	context.Context //nolint:containedctx // the parent: this is a context itself

	slot  *Slot
	inner atomic.Pointer[ending] // nil until Done was asked for, or the slot had ended
}

func (c *slotContext) Done() <-chan struct{} { return c.materialize().Done() }

func (c *slotContext) Err() error {
	if c.inner.Load() != nil || c.slot.ended.Load() {
		return c.materialize().Err()
	}
	return c.Context.Err()
}

func (c *slotContext) Value(key any) any {
	if key == (slotKey{}) {
		return c.slot
	}
	// Package context looks for the nearest cancellable ancestor and its cause by a key of its own, so once there is
	// an inner context it must be asked.
	if c.inner.Load() != nil || c.slot.ended.Load() {
		return c.materialize().Value(key)
	}
	return c.Context.Value(key)
}

// materialize returns the inner context, and makes it if it does not exist.
func (c *slotContext) materialize() context.Context {
	if e := c.inner.Load(); e != nil {
		return e.Context
	}
	e := newEnding(c.Context)
	c.slot.attach(e) // before anybody sees it: when Release has returned, all that can be seen has ended
	if !c.inner.CompareAndSwap(nil, e) {
		e.cancel(nil)
	}
	return c.inner.Load().Context
}

// An ending is a context that the registry can end. It does not refer to the slot: what the registry keeps must not
// keep the handle from being found lost.
type ending struct {
	context.Context //nolint:containedctx // kept to be cancelled, not to be passed on

	cancel context.CancelCauseFunc
}

func newEnding(parent context.Context) *ending {
	ctx, cancel := context.WithCancelCause(parent)
	return &ending{ctx, cancel}
}

func endAll(endings []*ending, cause error) {
	for _, e := range endings {
		e.cancel(cause)
	}
}

// attach makes e end with the slot. If the slot's contexts have ended, e ends at once.
func (s *Slot) attach(e *ending) {
	s.reg.mu.Lock()
	ended, cause := s.ended.Load(), s.cause
	if !ended {
		h := s.holder
		if h.more == nil {
			h.more = &more{}
		}
		h.more.attach(e)
	}
	s.reg.mu.Unlock()
	if ended {
		e.cancel(cmp.Or(cause, ErrReleased))
	}
}

// attach keeps e, and forgets those that have ended before it grows: a worker may take a context per job from one
// slot that it holds for days.
func (m *more) attach(e *ending) {
	if n := len(m.contexts); n == cap(m.contexts) {
		m.contexts = slices.DeleteFunc(m.contexts, func(e *ending) bool { return e.Err() != nil })
		if len(m.contexts) > n/2 {
			m.contexts = slices.Grow(m.contexts, n)
		}
	}
	m.contexts = append(m.contexts, e)
}

// endLocked marks the slot's contexts as ended, for the first cause that comes, nil for ErrReleased, and returns them to
// be cancelled outside the lock.
func (h *holder) endLocked(cause error) []*ending {
	if s := h.handle(); s != nil && !s.ended.Load() {
		if cause != nil {
			s.cause = cause
		}
		s.ended.Store(true)
	}
	if h.more == nil {
		return nil
	}
	endings := h.more.contexts
	h.more.contexts = nil
	return endings
}
