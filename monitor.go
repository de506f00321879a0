package inflight

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A SlotInfo describes a live slot.
type SlotInfo struct {
	ID         uint64
	Key        Key
	Also       []Key // further keys that it counts against
	Label      string
	Weight     int
	AcquiredAt time.Time
	Held       time.Duration // its age
	LongHeld   bool          // held longer than Config.LongHeld
	Lost       bool          // its handle was garbage collected unreleased; found by a sweep
	Stack      string        // where it was acquired, if Config.CaptureStack is set: a function and a file:line per call

	pcs []uintptr // Stack before it is written out, which is slow and not done under the lock
}

// A WaiterInfo describes an acquire that waits.
type WaiterInfo struct {
	Key     Key
	Label   string
	Weight  int
	Since   time.Time
	Blocked Scope // the scope of the limit that it is queued at
}

// A KeyInfo describes a key that is in use or waited for.
type KeyInfo struct {
	Key     Key
	InUse   int // weight in use
	Limit   int // its own limit as it is now; not that of its org or model
	Holders int
	Waiters int

	Leased    bool // whether the limit is shared with other processes, see Registry.Lease
	Granted   int  // of such a limit, how much may be in use here
	Elsewhere int  // and how much others had been granted when that was last known
}

// Slots returns the live slots, oldest first: at most limit of them, all if it is 0 or less. To describe very many
// takes time, so the lock is given up now and then; slots that come and go meanwhile may or may not be among them. Safe
// for concurrent use.
func (r *Registry) Slots(limit int) []SlotInfo {
	var found pile[SlotInfo]
	now := r.now()
	walk(r, &r.holders, batch, found.settle, func(h *holder) bool {
		return found.add(r.describeLocked(h, now)) != limit
	})
	writeStacks(found.all)
	return found.all
}

// Waiters returns those that wait, in the order of their arrival: at most limit of them, all if it is 0 or less. As with
// Slots, of very many those that come and go meanwhile may or may not be among them. Safe for concurrent use.
func (r *Registry) Waiters(limit int) []WaiterInfo {
	var found pile[WaiterInfo]
	walk(r, &r.waiters, batch, found.settle, func(w *waiter) bool {
		return found.add(WaiterInfo{
			Key: w.key, Label: w.method.before(w.label), Weight: w.weight,
			Since: r.start.Add(w.since), Blocked: w.block.gate.scope,
		}) != limit
	})
	return found.all
}

// Keys returns the live keys, those with the most weight in use first: at most limit of them, all if it is 0 or less.
// Limits are read after the count, outside the lock; if the limit function panics, that is logged and Limit is 0. Safe
// for concurrent use.
func (r *Registry) Keys(limit int) []KeyInfo {
	r.mu.Lock()
	n := len(r.gates[ScopeKey])
	r.mu.Unlock()
	found := pile[KeyInfo]{all: make([]KeyInfo, 0, n)}
	walk(r, &r.keys, quickBatch, found.settle, func(g *gate) bool {
		found.add(g.describeLocked())
		return true
	})
	infos := found.all
	slices.SortFunc(infos, func(a, b KeyInfo) int {
		return cmp.Or(
			cmp.Compare(b.InUse, a.InUse), cmp.Compare(b.Waiters, a.Waiters),
			cmp.Compare(a.Key.Org, b.Key.Org), cmp.Compare(a.Key.Model, b.Key.Model),
		)
	})
	if limit > 0 && limit < len(infos) {
		infos = slices.Clip(infos[:limit])
	}
	for i := range infos {
		infos[i].Limit = r.limitOf(infos[i].Key)
	}
	return infos
}

// Cancel ends the contexts of a slot with a cause, context.Canceled if it is nil. The slot stays counted until its
// holder releases it. It returns false if there is no such slot any more. Safe for concurrent use.
func (r *Registry) Cancel(id uint64, cause error) bool {
	if cause == nil {
		cause = context.Canceled
	}
	var endings []*ending
	found := r.find(id, func(h *holder) { endings = h.endLocked(cause) })
	endAll(endings, cause)
	return found
}

// Evict frees a slot by force and ends its contexts with ErrEvicted. It is the last resort: whatever the holder does
// goes on uncounted until it heeds its context. Its own Release does nothing then. It returns false if there is no such
// slot any more. Safe for concurrent use.
func (r *Registry) Evict(id uint64) bool {
	var endings []*ending
	now := r.now()
	found := r.find(id, func(h *holder) {
		r.tally.evicted++
		endings = r.removeLocked(h, ErrEvicted, now)
	})
	endAll(endings, ErrEvicted)
	return found
}

// find calls act, under the lock, for the slot with that id, and reports whether there is one. No index is kept for
// this: people ask for it, not requests.
func (r *Registry) find(id uint64, act func(*holder)) bool {
	found := false
	walk(r, &r.holders, quickBatch, nil, func(h *holder) bool {
		if h.id < id {
			return true
		}
		if found = h.id == id; found {
			act(h)
		}
		return false
	})
	return found
}

func (r *Registry) describeLocked(h *holder, now time.Duration) SlotInfo {
	info := SlotInfo{
		ID: h.id, Key: h.gate.key, Label: h.method.before(h.label), Weight: h.weight, AcquiredAt: r.start.Add(h.at),
		Held: max(now-h.at, 0), LongHeld: now-h.at > r.cfg.LongHeld, Lost: h.lost,
	}
	for _, g := range h.also {
		info.Also = append(info.Also, g.key)
	}
	if h.more != nil {
		info.pcs = h.more.stack
	}
	return info
}

func (g *gate) describeLocked() KeyInfo {
	info := KeyInfo{Key: g.key, InUse: g.inUse, Holders: g.holders, Waiters: g.waiters}
	if l := g.lease; l != nil {
		info.Leased, info.Granted, info.Elsewhere = true, l.granted, l.others
	}
	return info
}

func (r *Registry) limitOf(k Key) int {
	limits, _ := r.limitsOf(k)
	return limits[ScopeKey]
}

func writeStacks(infos []SlotInfo) {
	for i := range infos {
		if len(infos[i].pcs) == 0 {
			continue
		}
		var text strings.Builder
		frames := runtime.CallersFrames(infos[i].pcs)
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			fmt.Fprintf(&text, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		infos[i].Stack, infos[i].pcs = text.String(), nil
	}
}
