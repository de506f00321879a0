package inflight

import (
	"log/slog"
	"math"
)

// DefaultKeyLimit is the limit of a key for which none is set.
const DefaultKeyLimit = 64

// Unlimited is a limit that is never reached.
const Unlimited = math.MaxInt

// Blocked is a limit that admits nothing. So is every negative limit.
const Blocked = -1

// Limits are the limits that bear on one key, in units of weight (slots, as long as every weight is 1). In every
// field a negative value admits nothing.
type Limits struct {
	Key   int // slots of the same Org and Model; 0 means DefaultKeyLimit
	Org   int // slots of the key's Org over all models; 0 means no such limit
	Model int // slots of the key's Model over all orgs; 0 means no such limit
	Total int // all slots of the registry; 0 means no such limit
}

// A LimitFunc gives the limits of a key. It is called on each acquire, by many goroutines at once, outside the
// registry's lock, and must not block.
type LimitFunc func(Key) Limits

// Fixed returns a LimitFunc that gives every key the same limits.
func Fixed(l Limits) LimitFunc { return func(Key) Limits { return l } }

// byScope are limits with their zero values resolved: what is not limited is Unlimited, what is blocked is Blocked.
type byScope [scopes]int

func (l Limits) byScope() byScope {
	return byScope{
		ScopeKey:   resolve(l.Key, DefaultKeyLimit),
		ScopeOrg:   resolve(l.Org, Unlimited),
		ScopeModel: resolve(l.Model, Unlimited),
		ScopeTotal: resolve(l.Total, Unlimited),
	}
}

func resolve(limit, unset int) int {
	if limit == 0 {
		return unset
	}
	return max(limit, Blocked)
}

// LimitsChanged reads the limits of all waiters again, and lets in, in order, as many as now fit. A waiter that can no
// longer fit is refused. Without waiters there is nothing to do: every acquire reads its limits itself. Wire it to
// what holds the limits: table.OnChange(reg.LimitsChanged).
//
// If the limit function panics, that is logged and the limits of that key stay as they were. Safe for concurrent use.
func (r *Registry) LimitsChanged() {
	r.mu.Lock()
	epoch := r.epoch.Add(1)
	fresh := make(map[Key]byScope)
	for w := range r.waiters.all {
		for i := range w.keys() {
			k, _ := w.at(i)
			fresh[k] = byScope{}
		}
	}
	r.mu.Unlock()

	for k := range fresh {
		if limits, ok := r.limitsOf(k); ok {
			fresh[k] = limits
		} else {
			delete(fresh, k)
		}
	}

	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch.Load() != epoch {
		return // a later call has read later limits
	}
	// In order of arrival, so that an older waiter always goes first.
	for w := range r.waiters.all {
		for i := range w.keys() {
			k, limits := w.at(i)
			if l, ok := fresh[k]; ok {
				*limits = l
			}
		}
		r.trackLocked(&w.request)
		if _, _, heavy := w.tooHeavy(); heavy {
			w.exitLocked()
			r.doneLocked(w, r.refuseLocked(&w.request, w.block, refusedTooHeavy), now)
		} else {
			r.advanceLocked(w, now)
		}
	}
}

// limitsOf calls the limit function where nobody could catch its panic.
func (r *Registry) limitsOf(k Key) (limits byScope, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			r.emit((*slog.Logger).Error, "inflight: limit function panicked",
				"registry", r.cfg.Name, "key", k.String(), "panic", v)
		}
	}()
	return r.cfg.Limits(k).byScope(), true
}
