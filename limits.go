package inflight

import "math"

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
