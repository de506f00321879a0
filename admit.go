package inflight

import "time"

// A block says which limit of a request has no room.
type block struct {
	limited bool
	key     int    // which of the request's keys
	gate    *gate  // a blank one if nobody holds or waits there
	lease   *lease // of the gate if it is only that which has no room: more may be leased
}

// tryLocked admits q if there is room. If not it returns what has none, and the caller must refuse or queue q.
func (r *Registry) tryLocked(q *request, s *Slot, now time.Duration) (block, error) {
	if r.closed {
		r.tally.closed++
		return block{}, ErrClosed
	}
	r.trackLocked(q)
	b := r.blockedLocked(q, r.lastSeq+1, now)
	if !b.limited {
		r.admitLocked(q, s, now)
	}
	return b, nil
}

// blockedLocked returns the first limit that has no room for q, in the order in which limits are waited for. A limit
// for which somebody older than seq is waiting has no room: what there is belongs to them. A limit of which only too
// little is leased comes after those that are full, where more cannot be had.
func (r *Registry) blockedLocked(q *request, seq uint64, now time.Duration) block {
	var short block
	for i := range q.keys() {
		k, limits := q.at(i)
		for _, g := range r.gatesLocked(q, i) {
			limit := limits[g.scope]
			// Cannot overflow: 0 <= inUse, Blocked <= limit.
			if q.weight > limit-g.inUse {
				return block{limited: true, key: i, gate: g}
			}
			var lacking *lease
			if w := g.queue.first(); w != nil && w.seq < seq && limit != Unlimited {
				if lacking = w.block.lease; lacking == nil {
					return block{limited: true, key: i, gate: g}
				}
			} else if r.leases != nil && limit != Unlimited && q.weight > 0 {
				if g.lease == nil { // a blank one: nothing is leased there yet
					g.lease = r.leases.ofLocked(g.scope, k.at(g.scope))
				}
				if q.weight > g.lease.roomLocked(limit, now)-g.inUse {
					lacking = g.lease
				}
			}
			if lacking != nil && !short.limited {
				short = block{limited: true, key: i, gate: g, lease: lacking}
			}
		}
	}
	return short
}

// gatesLocked returns the gates where q counts for the i-th of its keys. It is good until the next call.
func (r *Registry) gatesLocked(q *request, i int) []*gate {
	switch {
	case q.opened && i == 0:
		return q.gate.path
	case q.opened:
		return q.also[i-1].path
	}
	k, _ := q.at(i)
	path := r.pathLocked(k)
	if i == 0 {
		q.gate = path[0]
	}
	return path
}

// tooHeavy returns the first limit that is below the weight of q: no wait can help there.
func (q *request) tooHeavy() (key int, scope Scope, heavy bool) {
	for i := range q.keys() {
		_, limits := q.at(i)
		for s, limit := range limits {
			if q.weight > limit {
				return i, Scope(s), true
			}
		}
	}
	return 0, 0, false
}

// refuseLocked counts a refusal and returns its error.
func (r *Registry) refuseLocked(q *request, b block, cause refusal) error {
	if i, s, heavy := q.tooHeavy(); heavy {
		k, _ := q.at(i)
		for _, g := range r.pathLocked(k) {
			if g.scope == s {
				b, cause = block{key: i, gate: g}, refusedTooHeavy
			}
		}
	}
	g := b.gate
	r.tally.rejected[g.scope][cause]++
	k, limits := q.at(b.key)
	inUse := g.inUse
	if b.lease != nil {
		inUse += b.lease.others
	}
	return &LimitError{
		Key: k, Scope: g.scope, InUse: inUse, Limit: limits[g.scope], Weight: q.weight, Waiters: g.queued, cause: cause,
	}
}

// admitLocked makes s the handle of a new holder. There must be room.
func (r *Registry) admitLocked(q *request, s *Slot, now time.Duration) {
	h := r.newHolderLocked()
	r.lastID++
	r.newest = max(r.newest, now) // the clock was read before the lock, perhaps in another order
	h.id, h.at = r.lastID, r.newest
	h.weight, h.method = q.weight, q.method
	if q.label != "" {
		h.label = q.label
	}
	h.slot = s
	s.holder, s.id, s.at = h, h.id, h.at

	r.openLocked(q)
	if h.gate != q.gate {
		h.gate = q.gate
	}
	if q.also != nil {
		h.also = q.also
	}
	if q.stack != nil {
		h.more = &more{stack: q.stack}
	}
	var buf [8]*gate
	for _, g := range h.places(buf[:0]) {
		g.inUse += h.weight
		g.holders++
		if l := g.lease; l != nil {
			l.peak, l.busy = max(l.peak, g.inUse), max(l.busy, g.inUse)
		}
	}
	peak := &r.tally.current
	peak.perKey = max(peak.perKey, h.gate.inUse)
	for _, g := range h.also {
		peak.perKey = max(peak.perKey, g.inUse)
	}
	peak.inUse = max(peak.inUse, r.total.inUse)
	r.tally.admitted++
	r.holders.push(&h.age)
}
