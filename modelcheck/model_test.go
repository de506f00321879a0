package modelcheck_test

import (
	"context"
	"slices"
	"time"

	"github.com/inflight-go/inflight"
)

// A model says what a registry must do. Nothing in it is fast and nothing is kept that can be counted anew: a count is
// the sum over all holders that bear on it, a queue is those of all waiters who are there.
type model struct {
	cfg     inflight.Config
	limits  map[inflight.Key]inflight.Limits // as they are now; a waiter goes by those that it has read
	closed  bool
	holders []*holding // in the order of their grants
	waiters []*waiting // in the order of their arrival

	settled map[string]outcome // what became of each acquire that does not wait, by name
	causes  map[string]error   // why the context of each slot ended, by name
	stats   totals
}

// totals are what the registry counts since New.
type totals struct {
	admitted, released, evicted, waited, canceled, closed uint64
	rejected                                              [4]inflight.Rejections
	peaks                                                 []peak // of each interval between sweeps, the running one last
	lastSweep                                             time.Time
	held, waits                                           uint64
	heldFor, waitedFor                                    time.Duration
}

// A peak is the most that was in use, in all and by one key.
type peak struct{ inUse, perKey int }

func most(of []peak) peak {
	var m peak
	for _, p := range of {
		m = peak{max(m.inUse, p.inUse), max(m.perKey, p.perKey)}
	}
	return m
}

// An ask is what an acquire asks for.
type ask struct {
	name   string         // its label, unique
	keys   []inflight.Key // none twice, that of the slot first
	limits []inflight.Limits
	weight int
}

type holding struct {
	ask

	since    time.Time
	reported bool // as long held
	overdue  bool // past MaxHold
}

type waiting struct {
	ask

	since    time.Time
	deadline time.Time // zero if there is none
	end      error     // what it fails with then: nil for that of the limit where it is
	stop     stop      // where it is queued
}

// An outcome is how an acquire ended: granted without an error.
type outcome struct {
	err   error               // if it was not for a limit
	limit inflight.LimitError // else; the error is ErrLimit
	queue bool                // it is also ErrTooManyWaiters
	self  bool                // it had been waiting, so Waiters may count itself or not
}

// A place is where the holders that bear on one limit are counted.
type place struct {
	scope inflight.Scope
	key   inflight.Key
}

func placesOf(k inflight.Key) []place {
	return []place{
		{inflight.ScopeKey, k},
		{inflight.ScopeOrg, inflight.Key{Org: k.Org}},
		{inflight.ScopeModel, inflight.Key{Model: k.Model}},
		{inflight.ScopeTotal, inflight.Key{}},
	}
}

func (a *ask) counts(p place) bool {
	return slices.ContainsFunc(a.keys, func(k inflight.Key) bool { return slices.Contains(placesOf(k), p) })
}

// limitAt is the limit of the i-th key in a scope.
func (a *ask) limitAt(i int, s inflight.Scope) int {
	l := a.limits[i]
	n := []int{l.Key, l.Org, l.Model, l.Total}[s]
	switch {
	case n < 0:
		return inflight.Blocked
	case n == 0 && s == inflight.ScopeKey:
		return inflight.DefaultKeyLimit
	case n == 0:
		return inflight.Unlimited
	}
	return n
}

func (a *ask) readLimits(m *model) {
	a.limits = nil
	for _, k := range a.keys {
		a.limits = append(a.limits, m.limits[k])
	}
}

func (m *model) inUse(p place) int {
	n := 0
	for _, h := range m.holders {
		if h.counts(p) {
			n += h.weight
		}
	}
	return n
}

func (m *model) queue(p place) []*waiting {
	var queue []*waiting
	for _, w := range m.waiters {
		if w.stop.place == p {
			queue = append(queue, w)
		}
	}
	return queue
}

// A stop is the limit that has no room for an ask.
type stop struct {
	key   int
	place place
}

// stopFor is the first limit of an ask that has no room, or where somebody of those before it waits. Who has no limit
// somewhere need not queue there.
func (m *model) stopFor(a *ask, before []*waiting) (stop, bool) {
	for i, k := range a.keys {
		for _, p := range placesOf(k) {
			limit := a.limitAt(i, p.scope)
			behind := limit != inflight.Unlimited &&
				slices.ContainsFunc(before, func(w *waiting) bool { return w.stop.place == p })
			if behind || m.inUse(p)+a.weight > limit {
				return stop{i, p}, true
			}
		}
	}
	return stop{}, false
}

// tooHeavy is the first limit below the weight of an ask.
func (a *ask) tooHeavy() (stop, bool) {
	for i, k := range a.keys {
		for _, p := range placesOf(k) {
			if a.weight > a.limitAt(i, p.scope) {
				return stop{i, p}, true
			}
		}
	}
	return stop{}, false
}

// refusal is the outcome of an ask that a limit refuses.
func (m *model) refusal(a *ask, s stop) outcome {
	return outcome{limit: inflight.LimitError{
		Key: a.keys[s.key], Scope: s.place.scope, InUse: m.inUse(s.place), Limit: a.limitAt(s.key, s.place.scope),
		Weight: a.weight, Waiters: len(m.queue(s.place)),
	}}
}

// tryAcquire decides at once.
func (m *model) tryAcquire(a ask, now time.Time) {
	a.readLimits(m)
	if m.closed {
		m.stats.closed++
		m.settled[a.name] = outcome{err: inflight.ErrClosed}
		return
	}
	s, stopped := m.stopFor(&a, m.waiters)
	if !stopped {
		m.admit(a, now)
		return
	}
	rejected := &m.stats.rejected[s.place.scope].Full
	if heavy, ok := a.tooHeavy(); ok {
		s, rejected = heavy, &m.stats.rejected[heavy.place.scope].TooHeavy
	}
	*rejected++
	m.settled[a.name] = m.refusal(&a, s)
}

// acquire decides at once or queues. The wait ends at the deadline, with the error end.
func (m *model) acquire(a ask, now, deadline time.Time, end error) {
	a.readLimits(m)
	s, stopped := m.stopFor(&a, m.waiters)
	_, heavy := a.tooHeavy()
	mayNotWait := !deadline.IsZero() && !deadline.After(now) || m.cfg.MaxWaiters < 0
	if m.closed || !stopped || heavy || mayNotWait {
		m.tryAcquire(a, now)
		return
	}
	full := len(m.waiters) >= m.cfg.MaxWaiters
	for _, k := range a.keys {
		n := 0
		for _, w := range m.waiters {
			if slices.Contains(w.keys, k) {
				n++
			}
		}
		full = full || n >= m.cfg.MaxWaitersPerKey
	}
	if full {
		o := m.refusal(&a, s)
		o.queue = true
		m.stats.rejected[s.place.scope].QueueFull++
		m.settled[a.name] = o
		return
	}
	m.waiters = append(m.waiters, &waiting{ask: a, since: now, deadline: deadline, end: end, stop: s})
}

// acquireEnded is an acquire with a context that has ended already.
func (m *model) acquireEnded(name string) {
	m.stats.canceled++
	m.settled[name] = outcome{err: context.Canceled}
}

func (m *model) admit(a ask, now time.Time) {
	m.holders = append(m.holders, &holding{ask: a, since: now})
	m.settled[a.name] = outcome{}
	m.stats.admitted++
	running := len(m.stats.peaks) - 1
	m.stats.peaks[running] = most([]peak{m.stats.peaks[running], m.use()})
}

// use is what is in use now.
func (m *model) use() peak {
	p := peak{inUse: m.inUse(place{scope: inflight.ScopeTotal})}
	for _, k := range m.keys() {
		p.perKey = max(p.perKey, k.InUse)
	}
	return p
}
