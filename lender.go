package inflight

import (
	"slices"
	"time"
)

// Asks returns leases that are too small for those who wait, at most limit of them, and when to look again for those
// who were denied more and still wait; that is zero if there are none.
func (ls *Leases) Asks(shard, limit int) (asks []Lease, again time.Time) {
	now := ls.reg.now()
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	s := &ls.shards[shard]
	next := never
	waiting := s.retries[:0]
	for _, l := range s.retries {
		if l.asking || l.gate == nil || l.gate.queue.first() == nil {
			l.retrying = false
			continue
		}
		q := &l.gate.queue.first().request
		if until := ls.reg.deniedLocked(q, l, now); until > now {
			waiting = append(waiting, l)
			next = min(next, until)
			continue
		}
		l.retrying = false
		ls.reg.askLocked(q, l, false, now)
	}
	clear(s.retries[len(waiting):])
	s.retries = waiting
	if next != never {
		again = ls.reg.start.Add(next)
	}

	n := min(limit, len(s.asked))
	for _, l := range s.asked[:n] {
		l.flying = true
		asks = append(asks, l.describeLocked(true))
	}
	s.asked = append(s.asked[:0], s.asked[n:]...)
	if len(s.asked) > 0 {
		s.wakeLocked()
	}
	return asks, again
}

// Idle returns tight leases of which something has been idle since the last call, at most limit of them, and gives that up.
// To be written down. What somebody is about to use who waits for an answer about another limit is not given up.
func (ls *Leases) Idle(shard, limit int) []Lease {
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	s := &ls.shards[shard]
	ls.awaitLocked(s)
	var idle []Lease
	again := s.idle[:0]
	for i, l := range s.idle {
		if len(idle) == limit {
			again = append(again, s.idle[i:]...)
			break
		}
		used := max(l.inUse(), l.busy)
		l.freeing, l.busy = false, l.inUse()
		switch {
		case l.asking || l.inUse() >= l.written:
			// It has found a use, or is written down with what is asked for.
		case used >= l.written || l.awaited == ls.round:
			l.freeing = true // it found one in the meantime, or will
			again = append(again, l)
		default:
			l.granted = min(l.granted, used)
			if l.gate == nil || l.gate.queue.first() == nil {
				l.denied = 0 // there is room again, if nobody else takes it; too little for those who wait
			}
			idle = append(idle, l.describeLocked(false))
		}
	}
	clear(s.idle[len(again):])
	if s.idle = again; len(again) > 0 {
		s.wakeLocked()
	}
	return idle
}

// awaitLocked marks what those need who wait for an answer, if any of it is offered in s.
func (ls *Leases) awaitLocked(s *leaseShard) {
	ls.round++
	if !slices.ContainsFunc(s.idle, func(l *lease) bool { return l.gate != nil && l.gate.waiters > 0 }) {
		return
	}
	var buf [8]*gate
	for w := range ls.reg.waiters.all {
		if l := w.block.lease; l != nil && l.asking {
			for _, g := range w.places(buf[:0]) {
				g.lease.awaited = ls.round
			}
		}
	}
}

// idleRounds is how many renewals an empty lease takes part in before it is forgotten, so that an engine that lost the
// last thing it was told is told once more.
const idleRounds = 3

// Held returns the leases of a shard that are to be renewed, at most limit of them, and whether there are more; the next
// call goes on from there, or begins again. It gives up what has not been of use for a while. With again it begins again
// at once.
func (ls *Leases) Held(shard, limit int, again bool) (held []Lease, more bool) {
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	s := &ls.shards[shard]
	if again {
		s.renewed.moveAfter(&s.leases.root)
	}
	for visits := 0; len(held) < limit && visits < quickBatch; visits++ {
		l := s.leases.after(&s.renewed).of
		if l == nil {
			s.renewed.moveAfter(&s.leases.root)
			return held, false
		}
		s.renewed.moveAfter(&l.listed)
		l.trimLocked()
		switch {
		case l.flying: // what it asks for renews it too
		case l.spentLocked():
			ls.forgetLocked(l)
		case l.seq > 0 || l.inUse() > 0: // also what is not limited, for it may be tomorrow
			held = append(held, l.describeLocked(false))
		}
	}
	return held, true
}

// trimLocked gives up what was not used in this interval nor in the one before; on a tight lease all that is not used now.
func (l *lease) trimLocked() {
	used := l.inUse()
	recent := max(used, l.peak, l.lastPeak)
	l.lastPeak, l.peak = l.peak, used
	if l.tight {
		recent = used
	}
	if !l.asking && (l.gate == nil || l.gate.waiters == 0) {
		l.granted = min(l.granted, recent)
	}
	l.idleRounds++
	if l.granted > 0 || l.written > 0 || l.gate != nil || l.asking {
		l.idleRounds = 0
	}
}

// spentLocked says that neither the registry nor the lender has any more use for the lease.
func (l *lease) spentLocked() bool {
	return l.idleRounds > idleRounds || l.idleRounds > 0 && l.seq == 0
}

func (ls *Leases) forgetLocked(l *lease) {
	l.listed.remove()
	leases := ls.leases[l.scope]
	delete(leases, l.key)
	if len(leases) == 0 {
		ls.leases[l.scope] = make(map[Key]*lease) // a map never shrinks
	}
}

// describeLocked gives the lease its next number. Whoever asks needs room for those who wait.
func (l *lease) describeLocked(asks bool) Lease {
	l.shard.seq++
	l.seq = l.shard.seq
	l.granted = max(l.granted, l.inUse()) // which was not leased, perhaps, when the limit was not set
	if asks && l.askLimit < l.limit {
		l.granted = l.inUse()
	}
	if asks {
		l.limit = l.askLimit
	}
	d := Lease{Scope: l.scope, Key: l.key, Limit: l.limit, Seq: l.seq, Have: l.granted, Denials: l.denials, asked: asks}
	if l.shard.sharing {
		d.Share = l.shard.share(l.limit)
	}
	if !asks {
		return d
	}
	want, head := l.want, l.head
	l.want = 0
	if l.gate != nil && l.gate.queue.first() != nil {
		head = l.gate.queue.first().weight
		for w := range l.gate.queue.all {
			want = add(want, w.weight, l.limit)
		}
	}
	free := d.Have - l.inUse()
	d.Need, d.Head = max(want-free, 0), max(min(want, head)-free, 0)
	if !l.tight {
		d.Slack = d.Have/2 + 1
	}
	return d
}

// Answer takes in what the lender answered to leases got by Asks, Idle or Held, and lets in those for whom there is room
// now.
func (ls *Leases) Answer(leases []Lease, grants []Grant) {
	now := ls.reg.now()
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	for i, g := range grants {
		d := &leases[i]
		if l := ls.leases[d.Scope][d.Key]; l != nil {
			l.answerLocked(d, g, now)
			ls.reg.settleLeaseLocked(l, now)
			l.offerLocked()
		}
	}
}

func (l *lease) answerLocked(d *Lease, g Grant, now time.Duration) {
	l.written, l.tight = g.Granted, g.Tight
	if g.Others >= 0 {
		l.others = g.Others
	}
	switch {
	case d.Limit == 0: // there is none, it is only told what is in use
		l.keep, l.tight = -1, false
	case g.Others >= 0:
		l.keep = g.Keep
	case l.keep == 0:
		l.tight = true // more was in use than may be, and it was not looked whether that is over
	default:
		l.keep = g.Keep
	}
	if d.asked || g.Granted > d.Have {
		// What was given up since then is written down again, so it may be used again.
		l.granted, l.limit = g.Granted, d.Limit
	}
	if d.asked {
		l.denyLocked(d, now+g.Denied)
		l.denials++
		if g.Denied == 0 {
			l.denials = 0
		}
	}
}

// denyLocked ends an ask. Until then there is no use in another one.
func (l *lease) denyLocked(d *Lease, until time.Duration) {
	l.asking, l.flying = false, false
	l.denied, l.deniedLimit = until, d.Limit
}

// Fail says that the lender did not answer, and for how long not to ask for these leases again. Those who wait for an
// answer are refused. The leases hold as before, until their time is over.
func (ls *Leases) Fail(leases []Lease, pause time.Duration) {
	now := ls.reg.now()
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	for i := range leases {
		d := &leases[i]
		l := ls.leases[d.Scope][d.Key]
		if l == nil {
			continue
		}
		l.written = max(l.written, d.Have+d.Need+d.Slack) // perhaps: the call may have been executed
		l.listed.moveAfter(&l.shard.renewed)              // to be told again before others are
		if d.asked {
			l.denyLocked(d, now+pause)
			ls.reg.settleLeaseLocked(l, now)
		}
	}
}
