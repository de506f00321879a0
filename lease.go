package inflight

import (
	"slices"
	"time"
)

// A lease is how much of a limit may be in use here, when the limit is shared with registries in other processes: see
// Leases. It narrows the limit of its gate and outlives the gate, for a key that falls idle may be in use again soon.
// Everything in it is guarded by Registry.mu.
type lease struct {
	scope  Scope
	key    Key // the part of the key that counts here, see Key.at
	shard  *leaseShard
	listed elem[lease] // in leaseShard.leases
	gate   *gate       // nil while nobody holds or waits there

	granted int    // never more than what the lender has written down for this process, as long as the shard holds
	written int    // what the lender has written down, as far as is known
	limit   int    // the limit under which it was granted
	keep    int    // what is granted above this is given up as it is released; negative: nothing is
	others  int    // what others were granted when that was last known
	seq     uint64 // of the last call about this lease
	tight   bool   // somebody was refused for want of room: what is idle is given back

	want     int  // weight that is wanted by those not queued here
	head     int  // that of the first of them
	asking   bool // an answer will come: a request that finds no room may wait for it
	flying   bool // the lender has been asked
	askLimit int  // under what limit: the lowest of those who ask

	denied      time.Duration // no answer but no is to be expected before this time,
	deniedLimit int           // under no higher limit than this
	denials     int           // how often in a row the answer was no
	retrying    bool          // in leaseShard.retries

	freeing bool   // in leaseShard.idle
	busy    int    // the most in use since it was put there
	awaited uint64 // when somebody who needs it too was last seen to wait for an answer elsewhere, see Leases.Idle

	peak, lastPeak int // the most in use since the last renewal, and in the interval before
	idleRounds     int // renewals since when there was something to renew
}

// leaseShard is what leases have in common that the lender renews together.
type leaseShard struct {
	wake chan struct{} // has room for one value, which says that there is something to do

	leases  list[lease]
	renewed elem[lease] // bookmark: those before it are renewed
	asked   []*lease    // those for which somebody asks
	retries []*lease    // those to ask for again when the denial is over, because somebody waits
	idle    []*lease    // those that may have something to give back

	seq   uint64        // of the last call about any of them
	until time.Duration // the leases hold until then
	down  bool          // they have not been renewed in time, and the lender was asked and did not answer
	// What stands in for the leases while the shard is down: each limit divided by parts, and this process is one of the
	// first ones if part is small. With 0 parts nothing is admitted.
	parts, part int
	// sharing says that the shard was down or new, so that others must be told of parts of limits that may be in use here.
	// It is over when the lender knows what everybody has.
	sharing bool
}

func (s *leaseShard) share(limit int) int {
	if s.parts <= 0 {
		return 0
	}
	share := limit / s.parts
	if s.part < limit%s.parts {
		share++
	}
	return share
}

func (s *leaseShard) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (l *lease) inUse() int {
	if l.gate == nil {
		return 0
	}
	return l.gate.inUse
}

// roomLocked returns how much may be in use here of a limit.
func (l *lease) roomLocked(limit int, now time.Duration) int {
	switch {
	case now < l.shard.until:
		if limit < l.limit {
			return l.inUse() // what was granted under a higher limit says nothing of what is due now
		}
		return l.granted
	case l.shard.down:
		return l.shard.share(limit)
	}
	return 0 // it has lapsed, and the lender has not been asked since
}

// deniedLocked returns until when there is no use in asking for more of a limit.
func (l *lease) deniedLocked(limit int, now time.Duration) time.Duration {
	switch {
	case l.shard.down && now >= l.shard.until:
		return never
	case limit <= l.deniedLimit:
		return l.denied
	}
	return 0
}

// askLocked notes that there is not enough of a limit.
func (l *lease) askLocked(limit int) {
	switch {
	case !l.asking:
		l.asking, l.askLimit = true, limit
		l.shard.asked = append(l.shard.asked, l)
		l.shard.wakeLocked()
	case !l.flying:
		l.askLimit = min(l.askLimit, limit)
	}
}

// retryLocked sees to it that the lease is asked for again, since somebody waits there.
func (l *lease) retryLocked() {
	if !l.asking && !l.retrying {
		l.retrying = true
		l.shard.retries = append(l.shard.retries, l)
		l.shard.wakeLocked()
	}
}

// freedLocked is called after a release, before anybody is let in: what others have a better right to is not used again
// here, and what then stays idle can be given back.
func (l *lease) freedLocked() {
	if l.keep >= 0 {
		l.granted = min(l.granted, max(l.keep, l.inUse()))
	}
	l.offerLocked()
}

// offerLocked sees to it that what is idle of a tight lease is given back, if it stays so.
func (l *lease) offerLocked() {
	if l.tight && !l.freeing && l.written > l.inUse() {
		l.freeing, l.busy = true, l.inUse()
		l.shard.idle = append(l.shard.idle, l)
		l.shard.wakeLocked()
	}
}

// A lack is a limit of a request of which not enough is leased.
type lack struct {
	*lease

	limit int
}

// lacksLocked returns what q lacks. It is, or will be, queued at here, which may be nil. It may use buf.
func (r *Registry) lacksLocked(q *request, here *lease, now time.Duration, buf []lack) []lack {
	for i := range q.keys() {
		_, limits := q.at(i)
		for _, g := range r.gatesLocked(q, i) {
			l, limit := g.lease, limits[g.scope]
			if l != nil && limit != Unlimited && (l == here || q.weight > l.roomLocked(limit, now)-g.inUse) {
				buf = append(buf, lack{l, limit})
			}
		}
	}
	return buf
}

// deniedLocked returns until when there is no use in asking for all that q lacks.
func (r *Registry) deniedLocked(q *request, here *lease, now time.Duration) time.Duration {
	var buf [8]lack
	return anyDeniedLocked(r.lacksLocked(q, here, now, buf[:0]), now)
}

func anyDeniedLocked(lacks []lack, now time.Duration) (until time.Duration) {
	for _, l := range lacks {
		until = max(until, l.deniedLocked(l.limit, now))
	}
	return until
}

// askLocked asks for all that q lacks at a time. It returns false if there is no use in that: then it asks for nothing, for
// a part is of no use either. With join q has not been counted before among those who want more elsewhere than here.
func (r *Registry) askLocked(q *request, here *lease, join bool, now time.Duration) bool {
	var buf [8]lack
	lacks := r.lacksLocked(q, here, now, buf[:0])
	if anyDeniedLocked(lacks, now) > now {
		return false
	}
	for i, l := range lacks {
		l.askLocked(l.limit)
		if l.lease == here { // its queue tells
			continue
		}
		if l.want == 0 {
			l.head = q.weight
		}
		if join && !slices.ContainsFunc(lacks[:i], func(other lack) bool { return other.lease == l.lease }) {
			l.want = add(l.want, q.weight, l.limit)
		} else { // two keys may share an org or a model, and all share the total
			l.want = max(l.want, q.weight)
		}
	}
	return true
}

// add returns a+b, or the limit if that is less: more is of no use, and sums must not overflow.
func add(a, b, limit int) int {
	if b > limit-a {
		return limit
	}
	return a + b
}

// mayStayLocked asks for what a waiter lacks of a lease. One that waits for nothing but the answer of the lender is
// refused if none is to be expected, and has then left.
func (r *Registry) mayStayLocked(w *waiter, now time.Duration) bool {
	if l := w.block.lease; l != nil {
		if r.askLocked(&w.request, l, false, now) {
			return true
		}
		if w.cause == mayWait {
			l.retryLocked()
		}
	}
	if w.cause == mayWait {
		return true
	}
	r.turnAwayLocked(w, now)
	return false
}

// turnAwayLocked refuses a waiter for the reason for which it would have been refused without a lender to ask.
func (r *Registry) turnAwayLocked(w *waiter, now time.Duration) {
	w.exitLocked()
	r.doneLocked(w, r.refuseLocked(&w.request, w.block, w.cause), now)
}

// settleLeaseLocked lets in whom the lease now has room for. Of those left, the ones that do not wait for room are refused
// unless another answer will come.
func (r *Registry) settleLeaseLocked(l *lease, now time.Duration) {
	if l.gate == nil || l.gate.waiters == 0 {
		return
	}
	r.settleLocked([]*gate{l.gate}, now)
	if l.gate == nil || l.asking {
		return
	}
	for w := range l.gate.queue.all {
		if w.cause != mayWait {
			if r.advanceLocked(w, now); l.gate == nil {
				return // it was the last
			}
		}
	}
}
