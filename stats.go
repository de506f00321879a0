package inflight

import (
	"math"
	"math/bits"
	"time"
)

// Stats is a snapshot of a registry: everything in it was true at one instant. It holds plain values only; the package
// metrics makes Prometheus metrics of it.
type Stats struct {
	// Now.
	InUse      int           // weight in use over all holders
	Holders    int           // live slots
	Keys       int           // keys with a holder or a waiter
	Waiters    int           // acquires that wait
	MaxPerKey  int           // the largest weight in use of any key
	LongHeld   int           // slots held longer than LongHeld
	LostHeld   int           // slots reported as lost that still count
	OldestHeld time.Duration // age of the oldest live slot, 0 if there is none

	// Since New. Every acquire that got as far as asking is in exactly one of Admitted, Rejected, Closed and Canceled.
	Admitted  uint64             // slots handed out
	Released  uint64             // slots given back by Release
	Evicted   uint64             // slots freed by Evict
	Reclaimed uint64             // slots freed by ReclaimLost
	Lost      uint64             // slots whose handle was garbage collected unreleased
	Waited    uint64             // waits that ended, granted or not
	Canceled  uint64             // acquires that failed because their context had ended
	Closed    uint64             // acquires that failed with ErrClosed
	Rejected  [scopes]Rejections // by the Scope whose limit refused

	PeakInUse  int // the most that InUse has been
	PeakPerKey int // the most that the weight in use of one key has been

	// The same since the sweep before the last one. Whoever reads these at least as often as sweeps come misses no burst,
	// however short.
	RecentPeakInUse  int
	RecentPeakPerKey int

	Sweeps    uint64    // sweeps done
	LastSweep time.Time // when the last one was; zero before the first

	Hold Histogram // how long slots were held, of those that have ended
	Wait Histogram // how long acquires waited, of those that had to
}

// Rejections counts the refusals of limits of one scope by their cause.
type Rejections struct {
	Full      uint64 // no room, and not to wait
	TooHeavy  uint64 // the weight is above the limit
	TimedOut  uint64 // MaxWait passed
	QueueFull uint64 // no room in the queue
}

// Total returns the sum of all causes.
func (n Rejections) Total() uint64 { return n.Full + n.TooHeavy + n.TimedOut + n.QueueFull }

// RejectedTotal returns how many acquires were refused by a limit, of any scope and for any cause.
func (s Stats) RejectedTotal() uint64 {
	var n uint64
	for _, r := range s.Rejected {
		n += r.Total()
	}
	return n
}

// A Histogram counts durations. Counts[i] is how many were at most Bounds[i] seconds and more than the bound before; the
// last of Counts, one more than Bounds, is how many were more than all bounds. The bounds are powers of two, from
// 2^-10 s (about a millisecond) to 2^12 s (a good hour).
type Histogram struct {
	Bounds []float64 // seconds
	Counts []uint64
	Sum    float64 // seconds
}

// Count returns how many durations were counted.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

const (
	lowestBound = -10 // as power of two, in seconds
	bounds      = 23
)

// histogram is a Histogram as it is counted, under the lock.
type histogram struct {
	counts [bounds + 1]uint64
	sum    float64 // nanoseconds; as integer, a million slots of some hours each would overflow
}

func (h *histogram) observe(d time.Duration) {
	d = max(d, 0)
	h.sum += float64(d)
	i := 0
	switch {
	case d > 1<<12*time.Second:
		i = bounds
	case d > 0: // in units of the lowest bound, a whole number of them belonging to the bucket below
		i = bits.Len64((uint64(d)<<-lowestBound - 1) / uint64(time.Second))
	}
	h.counts[i]++
}

func (h *histogram) export() Histogram {
	e := Histogram{Bounds: make([]float64, bounds), Counts: h.counts[:], Sum: h.sum / float64(time.Second)}
	for i := range e.Bounds {
		e.Bounds[i] = math.Ldexp(1, lowestBound+i)
	}
	return e
}

// A refusal is why a limit refused.
type refusal uint8

const (
	refusedFull refusal = iota
	refusedTooHeavy
	refusedMaxWait
	refusedQueueFull

	refusals
	mayWait = refusals
)

// tally is what a registry counts for Stats, under its lock.
type tally struct {
	admitted, released, evicted, reclaimed, lost uint64
	waited, canceled, closed                     uint64
	rejected                                     [scopes][refusals]uint64
	longHeld, lostHeld                           int   // live holders that have been reported as such
	ever, previous, current                      peaks // of all sweep intervals before this one, of the last of them, of this one
	sweeps                                       uint64
	lastSweep                                    time.Duration // since Registry.start
	hold, wait                                   histogram
}

// peaks are the most that was in use, in all and by one key.
type peaks struct{ inUse, perKey int }

func (p peaks) or(q peaks) peaks { return peaks{max(p.inUse, q.inUse), max(p.perKey, q.perKey)} }

// sweptLocked notes a sweep, which found that much in use. An interval ends with it, and the next begins.
func (t *tally) sweptLocked(now time.Duration, found peaks) {
	t.sweeps++
	t.lastSweep = max(t.lastSweep, now)
	t.ever, t.previous, t.current = t.ever.or(t.current), t.current, found
}

// Stats returns a consistent snapshot. It looks at every live key once (0.4 ms for 10,000), under the lock. Safe for
// concurrent use.
func (r *Registry) Stats() Stats {
	now := r.now()
	r.mu.Lock()
	t := r.tally
	s := Stats{InUse: r.total.inUse, Holders: r.total.holders, Waiters: r.total.waiters, Keys: len(r.gates[ScopeKey])}
	if w := r.busiestLocked(); w != nil {
		s.MaxPerKey = w.inUse
	}
	for h := range r.holders.all {
		s.OldestHeld = max(now-h.at, 0)
		break
	}
	s.LongHeld = t.longHeld + r.unreportedLocked(now)
	r.mu.Unlock()

	ever, recent := t.ever.or(t.current), t.previous.or(t.current)
	s.PeakInUse, s.PeakPerKey = ever.inUse, ever.perKey
	s.RecentPeakInUse, s.RecentPeakPerKey = recent.inUse, recent.perKey
	if s.Sweeps = t.sweeps; t.sweeps > 0 {
		s.LastSweep = r.start.Add(t.lastSweep)
	}
	s.LostHeld = t.lostHeld
	s.Admitted, s.Released, s.Evicted, s.Reclaimed, s.Lost = t.admitted, t.released, t.evicted, t.reclaimed, t.lost
	s.Waited, s.Canceled, s.Closed = t.waited, t.canceled, t.closed
	for i, n := range t.rejected {
		s.Rejected[i] = Rejections{
			Full: n[refusedFull], TooHeavy: n[refusedTooHeavy], TimedOut: n[refusedMaxWait], QueueFull: n[refusedQueueFull],
		}
	}
	s.Hold, s.Wait = t.hold.export(), t.wait.export()
	return s
}

// busiestLocked returns the gate of the key with the most in use, nil if there is none.
func (r *Registry) busiestLocked() *gate {
	var busiest *gate
	for g := range r.keys.all {
		if busiest == nil || g.inUse > busiest.inUse {
			busiest = g
		}
	}
	return busiest
}

// unreportedLocked returns how many holders have become long held since a sweep looked.
func (r *Registry) unreportedLocked(now time.Duration) int {
	n := 0
	for e := r.reported.next; e != &r.holders.root; e = e.next {
		if e.of == nil {
			continue
		}
		if now-e.of.at <= r.cfg.LongHeld {
			break
		}
		n++
	}
	return n
}
