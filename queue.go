package inflight

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A waiter is an acquire that found no room. It is queued at one gate at a time, the first of its own that has none,
// and reserves nothing meanwhile, there or elsewhere. The releaser who makes room decides who gets it, under the lock,
// before the waiter wakes. It is guarded by Registry.mu until settled.
type waiter struct {
	request

	seq   uint64 // its place in time, which it keeps when it moves from queue to queue
	since time.Duration

	block  block        // the limit it is queued at
	queued elem[waiter] // in block.gate.queue
	listed elem[waiter] // in Registry.waiters

	ready chan struct{} // has room for one value, which says that the waiter is settled
	slot  *Slot         // the handle, a live slot if settled without err
	cause refusal       // why it may not wait for room but for the answer of a lender, else mayWait
	err   error
	done  bool // settled: granted, refused, or given up
}

// Acquire takes a slot, and waits for room if a limit is full: first come, first served at each limit. A heavy waiter
// at the head of a queue holds back lighter ones behind it, so it cannot starve. A waiter waits at one limit at a time
// and reserves nothing.
//
// The error is ctx.Err() itself if the context has ended, always, even if there is room. It is a *LimitError (errors.Is
// ErrLimit) if the weight is above a limit (at once), if MaxWait passed, or if the queue is full (also
// ErrTooManyWaiters); ErrClosed if Close or Shutdown was called, before or during the wait. Then nothing was counted
// and nothing is left behind.
//
// The slot must be released: defer slot.Release().
func (r *Registry) Acquire(ctx context.Context, k Key, opts ...Option) (*Slot, error) {
	var q request
	if err := q.init(k, opts); err != nil {
		return nil, err
	}
	q.stack = r.callers()
	for {
		epoch := r.epoch.Load()
		q.readLimits(r.cfg.Limits)
		if err := ctx.Err(); err != nil {
			r.mu.Lock()
			r.tally.canceled++
			r.mu.Unlock()
			return nil, err
		}
		s := r.newSlot(&q)
		now := r.now()

		r.mu.Lock()
		b, err := r.tryLocked(&q, s, now)
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
		if !b.limited {
			r.mu.Unlock()
			return s, nil
		}
		cause := r.mayWaitLocked(&q)
		asked := b.lease != nil && r.askLocked(&q, b.lease, true, now)
		if cause != mayWait && !asked {
			err := r.refuseLocked(&q, b, cause)
			r.mu.Unlock()
			r.unused.Store(s)
			return nil, err
		}
		if r.epoch.Load() != epoch {
			r.mu.Unlock() // the limits changed since they were read: to wait for the old ones might be for ever
			continue
		}
		w := r.queueLocked(q, b, s, cause, now)
		r.mu.Unlock()
		return r.await(ctx, w)
	}
}

// mayWaitLocked returns mayWait, or why q is refused rather than queued.
func (r *Registry) mayWaitLocked(q *request) refusal {
	if _, _, heavy := q.tooHeavy(); heavy {
		return refusedTooHeavy
	}
	if r.cfg.MaxWaiters < 0 || q.bounded && q.maxWait <= 0 {
		return refusedFull
	}
	if r.total.waiters-r.total.brief >= r.cfg.MaxWaiters {
		return refusedQueueFull
	}
	if q.gate.waiters-q.gate.brief >= r.cfg.MaxWaitersPerKey {
		return refusedQueueFull
	}
	for _, k := range q.others {
		if g := r.gates[ScopeKey][k]; g != nil && g.waiters-g.brief >= r.cfg.MaxWaitersPerKey {
			return refusedQueueFull
		}
	}
	return mayWait
}

func (r *Registry) queueLocked(q request, b block, s *Slot, cause refusal, now time.Duration) *waiter {
	r.lastSeq++
	w := &waiter{request: q, seq: r.lastSeq, since: now, slot: s, cause: cause, ready: make(chan struct{}, 1)}
	w.queued.of, w.listed.of = w, w
	r.openLocked(&w.request)
	if l := b.lease; l != nil {
		b.gate = l.gate // it may have been a blank one
		if cause == mayWait {
			l.retryLocked()
		}
	}
	if cause != mayWait {
		w.bounded, w.maxWait = true, r.leases.patience
	}
	w.countLocked(1)
	r.waiters.push(&w.listed)
	w.enterLocked(b)
	return w
}

// countLocked counts w at all its gates, or no more with n = -1.
func (w *waiter) countLocked(n int) {
	var buf [8]*gate
	for _, g := range w.places(buf[:0]) {
		g.waiters += n
		if w.cause != mayWait {
			g.brief += n
		}
	}
}

// enterLocked queues w at the gate of b, behind those who came before it and before those who came later.
func (w *waiter) enterLocked(b block) {
	at := b.gate.queue.root.prev
	for at.of != nil && at.of.seq > w.seq {
		at = at.prev
	}
	w.queued.insertAfter(at)
	w.block = b
	b.gate.queued++
}

func (w *waiter) exitLocked() {
	w.queued.remove()
	w.block.gate.queued--
}

// settleLocked lets in who waits at places, oldest first, as far as the room there goes.
func (r *Registry) settleLocked(places []*gate, now time.Duration) {
	var buf [8]*gate
	open := append(buf[:0], places...)
	for {
		var oldest *waiter
		for _, g := range open {
			if w := g.queue.first(); w != nil && (oldest == nil || w.seq < oldest.seq) {
				oldest = w
			}
		}
		if oldest == nil {
			return
		}
		if at := oldest.block.gate; !r.advanceLocked(oldest, now) {
			open = slices.DeleteFunc(open, func(g *gate) bool { return g == at })
		}
	}
}

// advanceLocked lets w in, or on to the first limit that has no room for it. It returns false if w is there already and
// stays.
func (r *Registry) advanceLocked(w *waiter, now time.Duration) bool {
	b := r.blockedLocked(&w.request, w.seq, now)
	if b.limited && b.gate == w.block.gate {
		w.block = b
		return !r.mayStayLocked(w, now)
	}
	w.exitLocked()
	if b.limited {
		w.enterLocked(b)
		r.mayStayLocked(w, now)
		return true
	}
	r.admitLocked(&w.request, w.slot, now)
	r.doneLocked(w, nil, now)
	return true
}

// doneLocked settles w, which has left its queue, and wakes it.
func (r *Registry) doneLocked(w *waiter, err error, now time.Duration) {
	w.err, w.done = err, true
	w.listed.remove()
	w.countLocked(-1)
	var buf [8]*gate
	for _, g := range slices.Backward(w.places(buf[:0])) { // as in removeLocked
		r.dropLocked(g)
	}
	r.tally.waited++
	r.tally.wait.observe(now - w.since)
	w.ready <- struct{}{}
}

// await waits for w to be settled, and gives up when ctx ends or MaxWait passes.
func (r *Registry) await(ctx context.Context, w *waiter) (s *Slot, err error) {
	woken := false
	err = errGone // stands if ctx, which is user code, panics
	defer func() { s, err = r.endWait(w, woken, err) }()

	var expired <-chan time.Time
	if w.bounded {
		timer := time.NewTimer(w.maxWait)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-w.ready:
		woken = true
	case <-ctx.Done():
	case <-expired:
	}
	return nil, ctx.Err()
}

var errGone = errors.New("inflight: waiter gone")

// endWait returns what became of w. If it is still waiting it gives up, because of ctxErr or else because MaxWait has
// passed. A context that has ended always wins.
func (r *Registry) endWait(w *waiter, woken bool, ctxErr error) (*Slot, error) {
	if !woken {
		r.giveUp(w, ctxErr)
	}
	if w.err != nil {
		return nil, w.err
	}
	if ctxErr != nil {
		w.slot.Release() // the grant and the end of the context raced: given back like any other
		return nil, ctxErr
	}
	return w.slot, nil
}

func (r *Registry) giveUp(w *waiter, ctxErr error) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.done {
		return // in the meantime
	}
	w.exitLocked()
	err := ctxErr
	if err != nil {
		r.tally.canceled++
	} else {
		cause := w.cause
		if cause == mayWait {
			cause = refusedMaxWait
		}
		err = r.refuseLocked(&w.request, w.block, cause)
	}
	r.settleLocked([]*gate{w.block.gate}, now) // whom it held back
	r.doneLocked(w, err, now)
}
