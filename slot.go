package inflight

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"weak"
)

// A Slot is the right to have one request in flight. Whoever got it must call Release, once, when the request has
// ended; until then it counts, however long that takes. It must not be copied. All its methods are safe for
// concurrent use, and all but Context and Release only read.
type Slot struct {
	// Immutable once the slot is handed out.
	ticket
	key    Key
	label  string
	at     time.Duration // since Registry.start
	weight int
	method method

	// ended is set under Registry.mu when the slot's contexts have ended, and read without.
	ended atomic.Bool
	taken atomic.Bool // by Take, or by the middleware when it released the slot

	cause error // why the contexts ended, nil for ErrReleased; guarded by Registry.mu
}

// A holder is the registry's record of a live slot. It is guarded by Registry.mu and used again after its slot has
// ended, under another id.
type holder struct {
	claim

	age    elem[holder] // in Registry.holders while live
	id     uint64       // 0 when not live
	at     time.Duration
	label  string
	method method

	longHeld bool // reported as held long
	lost     bool // reported as lost

	// slot is the handle until a sweep has seen it, weak the handle from then on. Short slots so never pay for a weak
	// pointer, and the handle of a long one is free to be collected, which is how a lost one is found.
	slot *Slot
	weak weak.Pointer[Slot]

	more *more // what few holders have
}

// more is the part of a holder that most do without.
type more struct {
	contexts []*ending
	stack    []uintptr
}

// A ticket names a holder: its record as long as the id is the same. Records are used again, so under Registry.mu that is
// asked each time; a late or second Release finds another id and does nothing. Unlike the handle, a ticket may be kept
// without keeping a dropped slot from being found lost.
type ticket struct {
	reg    *Registry
	holder *holder
	id     uint64
}

// liveLocked returns the record, nil if the slot has been released, evicted or reclaimed.
func (t ticket) liveLocked() *holder {
	if t.holder == nil || t.holder.id != t.id {
		return nil
	}
	return t.holder
}

// Release gives the slot back, ends its contexts with cause ErrReleased and lets waiters in. Only the first call does
// anything; later and concurrent ones, calls after Evict and calls on nil do nothing. It cannot fail and waits for
// nothing but the registry's lock.
func (s *Slot) Release() {
	if s != nil && s.reg != nil {
		s.release()
		runtime.KeepAlive(s) // while the release waits for the lock, this slot is not lost
	}
}

func (t ticket) release() {
	now := t.reg.now()
	t.reg.mu.Lock()
	h := t.liveLocked()
	if h == nil {
		t.reg.mu.Unlock()
		return
	}
	t.reg.tally.released++
	endings := t.reg.removeLocked(h, nil, now)
	t.reg.mu.Unlock()
	endAll(endings, ErrReleased)
}

// Key returns the key that the slot was taken for. Like ID, Label, Weight and AcquiredAt it may be called at any time,
// also after Release.
func (s *Slot) Key() Key { return s.key }

// ID returns the number of the slot. It is unique in the registry, never used again, and larger than those of all
// slots admitted before.
func (s *Slot) ID() uint64 { return s.id }

// Label returns what was set by the option Label.
func (s *Slot) Label() string { return s.method.before(s.label) }

// Weight returns how many units of the limits the slot takes up.
func (s *Slot) Weight() int { return s.weight }

// AcquiredAt returns when the slot was admitted. It has a monotonic reading, so time.Since is exact.
func (s *Slot) AcquiredAt() time.Time { return s.reg.start.Add(s.at) }

// newSlot returns a handle for q. It is made before the lock is taken, under which nobody should have to wait for the
// garbage collector. If q is then refused the handle goes to unused, for under overload most are.
func (r *Registry) newSlot(q *request) *Slot {
	s := r.unused.Load()
	if s == nil || !r.unused.CompareAndSwap(s, nil) {
		s = new(Slot)
	}
	s.reg, s.key, s.label, s.method, s.weight = r, q.key, q.label, q.method, q.weight
	return s
}

func (r *Registry) newHolderLocked() *holder {
	if h := r.spareHolders.take(); h != nil {
		return h
	}
	h := &holder{}
	h.age.of = h
	return h
}

// removeLocked is the only way out of the set of holders. It lets in who waited for the room, and returns the contexts
// to end once the lock is given up.
func (r *Registry) removeLocked(h *holder, cause error, now time.Duration) []*ending {
	endings := h.endLocked(cause)
	r.tally.hold.observe(now - h.at)
	if h.longHeld {
		r.tally.longHeld--
	}
	if h.lost {
		r.tally.lostHeld--
	}

	var buf [8]*gate
	places := h.places(buf[:0])
	for _, g := range places {
		g.inUse -= h.weight
		g.holders--
		if g.lease != nil {
			g.lease.freedLocked()
		}
	}
	h.age.remove()
	h.reset()
	r.spareHolders.put(h)

	if r.total.waiters > 0 {
		r.settleLocked(places, now)
	}
	for _, g := range slices.Backward(places) { // the first last: it may hold the path that places is
		r.dropLocked(g)
	}
	if r.drained != nil && r.total.holders == 0 {
		close(r.drained)
		r.drained = nil
	}
	return endings
}

// reset makes h ready for its next slot. What is empty already, most of it in most cases, is not written again: that
// costs more than to look.
func (h *holder) reset() {
	h.id, h.slot = 0, nil
	if h.label != "" {
		h.label = ""
	}
	if h.also != nil {
		h.also = nil
	}
	if h.more != nil {
		h.more = nil
	}
	if h.weak != (weak.Pointer[Slot]{}) {
		h.weak = weak.Pointer[Slot]{}
	}
	h.longHeld, h.lost = false, false
}

// handle returns the handle of a live holder, nil if it has been collected.
func (h *holder) handle() *Slot {
	if h.slot != nil {
		return h.slot
	}
	return h.weak.Value()
}
