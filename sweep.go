package inflight

import (
	"cmp"
	"log/slog"
	"runtime"
	"slices"
	"time"
	"weak"
)

// A SweepReport is what a sweep found.
type SweepReport struct {
	At          time.Time
	InUse       int
	Holders     int
	Keys        int
	Waiters     int
	LongestWait time.Duration // age of the oldest waiter, 0 if there is none
	Busiest     KeyInfo       // the key with the most in use; zero if there is none

	LongHeld      []SlotInfo // all that are held longer than Config.LongHeld now, oldest first
	NewlyLongHeld []SlotInfo // those of them that no sweep has reported before
	HeldTooLong   []SlotInfo // found by this sweep to be over Config.MaxHold: their contexts were cancelled
	Lost          []SlotInfo // found by this sweep to be lost: their handles were garbage collected unreleased
}

// Sweep looks for slots that are held too long or lost, logs each once, and reports; it frees none, but for lost ones
// if Config.ReclaimLost is set. It also reads the limits of waiters again. The sweeper calls it each SweepInterval; it
// may be called at any time. Its cost is in proportion to what it reports and to what was admitted since the last
// sweep, and to the number of keys, not to what is in flight. Safe for concurrent use.
func (r *Registry) Sweep() SweepReport {
	r.LimitsChanged()
	now := r.now()
	rep := SweepReport{At: r.start.Add(now)}

	advance(r, &r.holders, &r.seen, slowerBatch, nil, func(h *holder) bool {
		r.loosenLocked(h)
		return true
	})
	var newly, overdue, long pile[SlotInfo]
	advance(r, &r.holders, &r.reported, batch, newly.settle, func(h *holder) bool {
		if now-h.at <= r.cfg.LongHeld {
			return false
		}
		h.longHeld = true
		r.tally.longHeld++
		newly.add(r.describeLocked(h, now))
		return true
	})
	var endings []*ending
	end := func() {
		overdue.settle()
		endAll(endings, ErrHeldTooLong)
		endings = endings[:0]
	}
	advance(r, &r.holders, &r.overdue, batch, end, func(h *holder) bool {
		if now-h.at <= r.cfg.MaxHold {
			return false
		}
		endings = append(endings, h.endLocked(ErrHeldTooLong)...)
		overdue.add(r.describeLocked(h, now))
		return true
	})
	rep.Lost = r.findLost(now)
	walk(r, &r.holders, batch, long.settle, func(h *holder) bool {
		if now-h.at <= r.cfg.LongHeld {
			return false
		}
		long.add(r.describeLocked(h, now))
		return true
	})
	rep.NewlyLongHeld, rep.HeldTooLong, rep.LongHeld = newly.all, overdue.all, long.all
	r.summarize(&rep, now)

	for _, infos := range [][]SlotInfo{rep.LongHeld, rep.NewlyLongHeld, rep.HeldTooLong, rep.Lost} {
		writeStacks(infos)
	}
	r.log("inflight: slot held long", rep.NewlyLongHeld)
	r.log("inflight: slot held too long, its context is cancelled", rep.HeldTooLong)
	r.log("inflight: slot lost, its handle was dropped without Release", rep.Lost)
	if r.cfg.OnSweep != nil {
		r.cfg.OnSweep(rep)
	}
	return rep
}

// loosenLocked leaves the handle to the garbage collector, which then tells whether anybody else still holds it.
func (r *Registry) loosenLocked(h *holder) {
	h.weak = weak.Make(h.slot)
	runtime.AddCleanup(h.slot, ticket.orphaned, ticket{r, h, h.id})
	h.slot = nil
}

// orphaned notes a lost handle. Most handles come here after their Release, and are not lost.
func (t ticket) orphaned() {
	t.reg.mu.Lock()
	defer t.reg.mu.Unlock()
	if t.liveLocked() != nil {
		t.reg.orphans = append(t.reg.orphans, t)
	}
}

// probes is how many of the oldest handles a sweep asks for itself. The garbage collector reports each lost handle, but
// after a while; the sweep that follows a collection should find what there is to find in a small registry.
const probes = 256

func (r *Registry) findLost(now time.Duration) []SlotInfo {
	n := 0
	walk(r, &r.holders, slowerBatch, nil, func(h *holder) bool {
		if n++; h.slot != nil || n > probes {
			return false
		}
		if h.weak.Value() == nil {
			r.orphans = append(r.orphans, ticket{r, h, h.id})
		}
		return true
	})
	r.mu.Lock()
	orphans := r.orphans
	r.orphans = nil
	r.mu.Unlock()

	var lost pile[SlotInfo]
	for some := range slices.Chunk(orphans, slowerBatch) {
		var endings []*ending
		r.mu.Lock()
		for _, t := range some {
			h := t.liveLocked()
			if h == nil || h.lost {
				continue
			}
			h.lost = true
			r.tally.lost++
			r.tally.lostHeld++
			lost.add(r.describeLocked(h, now))
			if r.cfg.ReclaimLost {
				r.tally.reclaimed++
				endings = append(endings, r.removeLocked(h, ErrEvicted, now)...)
			}
		}
		r.mu.Unlock()
		endAll(endings, ErrEvicted)
		lost.settle()
	}
	slices.SortFunc(lost.all, func(a, b SlotInfo) int { return cmp.Compare(a.ID, b.ID) }) // not as the collector came by
	return lost.all
}

func (r *Registry) summarize(rep *SweepReport, now time.Duration) {
	r.mu.Lock()
	rep.InUse, rep.Holders, rep.Waiters = r.total.inUse, r.total.holders, r.total.waiters
	rep.Keys = len(r.gates[ScopeKey])
	for w := range r.waiters.all {
		rep.LongestWait = max(now-w.since, 0)
		break
	}
	busiest := r.busiestLocked()
	if busiest != nil {
		rep.Busiest = busiest.describeLocked()
	}
	r.tally.sweptLocked(now, peaks{rep.InUse, rep.Busiest.InUse})
	r.mu.Unlock()
	if busiest != nil {
		rep.Busiest.Limit = r.limitOf(rep.Busiest.Key)
	}
}

// log writes a line per slot: its key and what identifies it, nothing of the request itself.
func (r *Registry) log(message string, infos []SlotInfo) {
	for i := range infos {
		s := &infos[i]
		attrs := []any{
			slog.String("registry", r.cfg.Name), slog.Uint64("id", s.ID), slog.String("key", s.Key.String()),
			slog.String("label", s.Label), slog.Duration("age", s.Held),
		}
		if s.Stack != "" {
			attrs = append(attrs, slog.String("stack", s.Stack))
		}
		r.emit((*slog.Logger).Warn, message, attrs...)
	}
}

// emit writes one line. A logger that panics takes nothing with it: there is nobody left to tell.
func (r *Registry) emit(write func(*slog.Logger, string, ...any), message string, attrs ...any) {
	defer func() { _ = recover() }()
	logger := r.cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	write(logger, message, attrs...)
}

// sweeper calls Sweep each interval until stop is closed or the registry is gone: between sweeps it holds it weakly, so
// that a registry nobody uses any more is collected.
func sweeper(reg weak.Pointer[Registry], interval time.Duration, stop <-chan struct{}, swept chan<- struct{}) {
	defer close(swept)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		r := reg.Value()
		if r == nil {
			return
		}
		r.sweepAndRecover()
	}
}

// sweepAndRecover keeps the sweeper going when a hook panics.
func (r *Registry) sweepAndRecover() {
	defer func() {
		if v := recover(); v != nil {
			r.emit((*slog.Logger).Error, "inflight: sweep panicked", "registry", r.cfg.Name, "panic", v)
		}
	}()
	r.Sweep()
}
