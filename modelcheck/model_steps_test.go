package modelcheck_test

import (
	"context"
	"slices"
	"time"

	"github.com/inflight-go/inflight"
)

// makeWay lets in who waits at the places where room may have come, the oldest first, or lets them on to their next
// limit. It ends when the head of each queue there has to stay.
func (m *model) makeWay(places []place, now time.Time) {
	for {
		var head *waiting
		for _, w := range m.waiters {
			if slices.Contains(places, w.stop.place) {
				head = w
				break
			}
		}
		if head == nil {
			return
		}
		if at := head.stop.place; !m.advance(head, now) {
			places = slices.DeleteFunc(slices.Clone(places), func(p place) bool { return p == at })
		}
	}
}

// advance lets a waiter in or to another limit; false if it stays where it is.
func (m *model) advance(w *waiting, now time.Time) bool {
	s, stopped := m.stopFor(&w.ask, m.waiters[:slices.Index(m.waiters, w)])
	moved := !stopped || s.place != w.stop.place
	w.stop = s
	if !stopped {
		m.remove(w, now)
		m.admit(w.ask, now)
	}
	return moved
}

func (m *model) remove(w *waiting, now time.Time) {
	m.waiters = slices.DeleteFunc(slices.Clone(m.waiters), func(v *waiting) bool { return v == w })
	m.stats.waited++
	m.stats.waits++
	m.stats.waitedFor += now.Sub(w.since)
}

// leave ends a wait without a grant.
func (m *model) leave(w *waiting, o outcome, now time.Time) {
	m.remove(w, now)
	m.settled[w.name] = o
	m.makeWay([]place{w.stop.place}, now)
}

// cancel ends the context of an acquire.
func (m *model) cancel(name string, now time.Time) {
	for _, w := range m.waiters {
		if w.name == name {
			m.stats.canceled++
			m.leave(w, outcome{err: context.Canceled}, now)
			return
		}
	}
}

// pass lets time go on: waiters reach their deadlines, one after the other.
func (m *model) pass(now time.Time) {
	for {
		var next *waiting
		for _, w := range m.waiters {
			due := !w.deadline.IsZero() && !w.deadline.After(now)
			if due && (next == nil || w.deadline.Before(next.deadline)) {
				next = w
			}
		}
		if next == nil {
			return
		}
		o := outcome{err: next.end}
		if next.end != nil {
			m.stats.canceled++
		} else {
			o = m.refusal(&next.ask, next.stop)
			o.self = true
			m.stats.rejected[next.stop.place.scope].TimedOut++
		}
		m.leave(next, o, next.deadline)
	}
}

// end takes a slot out of the holders, and reports whether it was one of them.
func (m *model) end(name string, cause error, total *uint64, now time.Time) bool {
	i := slices.IndexFunc(m.holders, func(h *holding) bool { return h.name == name })
	if i < 0 {
		return false
	}
	h := m.holders[i]
	m.holders = slices.Delete(slices.Clone(m.holders), i, i+1)
	m.endContext(name, cause)
	*total++
	m.stats.held++
	m.stats.heldFor += now.Sub(h.since)
	var places []place
	for _, k := range h.keys {
		places = append(places, placesOf(k)...)
	}
	m.makeWay(places, now)
	return true
}

func (m *model) release(name string, now time.Time) {
	m.end(name, inflight.ErrReleased, &m.stats.released, now)
}

func (m *model) evict(name string, now time.Time) bool {
	return m.end(name, inflight.ErrEvicted, &m.stats.evicted, now)
}

// endContext ends the contexts of a slot, for the first cause that comes.
func (m *model) endContext(name string, cause error) {
	if m.causes[name] == nil {
		m.causes[name] = cause
	}
}

func (m *model) cancelSlot(name string, cause error) bool {
	live := slices.ContainsFunc(m.holders, func(h *holding) bool { return h.name == name })
	if live {
		m.endContext(name, cause)
	}
	return live
}

// limitsChanged makes all waiters read their limits, and looks at each in the order of their arrival.
func (m *model) limitsChanged(now time.Time) {
	for _, w := range m.waiters {
		w.readLimits(m)
	}
	for _, w := range slices.Clone(m.waiters) {
		if s, heavy := w.tooHeavy(); heavy {
			o := m.refusal(&w.ask, s)
			o.self = true
			m.stats.rejected[s.place.scope].TooHeavy++
			m.remove(w, now)
			m.settled[w.name] = o
		} else {
			m.advance(w, now)
		}
	}
}

// A finding is what a sweep reports: names, oldest first.
type finding struct{ longHeld, newlyLongHeld, heldTooLong []string }

func (m *model) sweep(now time.Time) finding {
	m.limitsChanged(now)
	var f finding
	for _, h := range m.holders {
		age := now.Sub(h.since)
		if age > m.cfg.LongHeld {
			f.longHeld = append(f.longHeld, h.name)
			if !h.reported {
				h.reported = true
				f.newlyLongHeld = append(f.newlyLongHeld, h.name)
			}
		}
		if age > m.cfg.MaxHold && !h.overdue {
			h.overdue = true
			m.endContext(h.name, inflight.ErrHeldTooLong)
			f.heldTooLong = append(f.heldTooLong, h.name)
		}
	}
	m.stats.peaks = append(m.stats.peaks, m.use())
	m.stats.lastSweep = now
	return f
}

func (m *model) close(now time.Time) {
	m.closed = true
	for _, w := range m.waiters {
		m.remove(w, now)
		m.stats.closed++
		m.settled[w.name] = outcome{err: inflight.ErrClosed}
	}
}

// keys are those with a holder or a waiter.
func (m *model) keys() []inflight.KeyInfo {
	var infos []inflight.KeyInfo
	for k, l := range m.limits {
		info := inflight.KeyInfo{Key: k, InUse: m.inUse(place{inflight.ScopeKey, k})}
		for _, h := range m.holders {
			if slices.Contains(h.keys, k) {
				info.Holders++
			}
		}
		for _, w := range m.waiters {
			if slices.Contains(w.keys, k) {
				info.Waiters++
			}
		}
		if info.Holders+info.Waiters > 0 {
			a := ask{limits: []inflight.Limits{l}}
			info.Limit = a.limitAt(0, inflight.ScopeKey)
			infos = append(infos, info)
		}
	}
	return infos
}
