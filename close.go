package inflight

import (
	"context"
	"fmt"
)

// Close stops admitting, refuses all waiters with ErrClosed, ends the sweeper and waits for it. Live slots stay
// counted and can be released. Close may be called many times, before and after Shutdown, and always returns nil. It
// must not be called from OnSweep or a Logger, for whose return it waits.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closeLocked()
	if !r.stopped {
		r.stopped = true
		close(r.stop)
	}
	r.mu.Unlock()
	<-r.swept
	return nil
}

// Shutdown stops admitting, refuses all waiters with ErrClosed, and waits until every slot is released or ctx ends.
// When all are released it also ends the sweeper, as Close does, and returns nil. When ctx ends first the error wraps
// ctx.Err() and says how many slots are left; the sweeper goes on, so that MaxHold still ends holders, and Shutdown or
// Close may be called again. It must not be called from OnSweep or a Logger.
func (r *Registry) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.closeLocked()
	var drained chan struct{}
	if r.total.holders > 0 {
		if r.drained == nil {
			r.drained = make(chan struct{})
		}
		drained = r.drained
	}
	r.mu.Unlock()
	if drained == nil {
		return r.Close()
	}
	select {
	case <-drained:
		return r.Close()
	case <-ctx.Done():
	}
	r.mu.Lock()
	left := r.total.holders
	r.mu.Unlock()
	if left == 0 {
		return r.Close()
	}
	plural := "s"
	if left == 1 {
		plural = ""
	}
	return fmt.Errorf("inflight: shutdown: %d slot%s left: %w", left, plural, ctx.Err())
}

// closeLocked stops admitting and refuses all waiters.
func (r *Registry) closeLocked() {
	if r.closed {
		return
	}
	r.closed = true
	now := r.now()
	for w := range r.waiters.all {
		r.tally.closed++
		w.exitLocked()
		r.doneLocked(w, ErrClosed, now)
	}
}
