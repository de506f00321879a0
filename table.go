package inflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// A LimitTable holds limits that can change while a registry runs: defaults, and rules for an organisation, for a
// model, or for one organisation on one model. Its method Limits is the registry's limit function; let changes reach
// the waiters at once with OnChange:
//
//	table := inflight.NewLimitTable(inflight.Limits{Key: 64})
//	registry, err := inflight.New(inflight.Config{Limits: table.Limits})
//	// ...
//	table.OnChange(registry.LimitsChanged)
//
// A rule counts field by field: each field of Limits comes from the most specific rule that sets it, which is the rule
// of the org and model, else of the org, else of the model, else the defaults. A field that is 0 is not set, so it
// overrides nothing; Unlimited and Blocked are set.
//
// Give a limit in a rule that is as wide as its scope or wider. An Org limit in the rule of one org and model, say,
// holds back the requests for that model only, though it counts those of the whole org.
//
// The zero value is a table without defaults and rules. A table is safe for concurrent use and must not be copied.
type LimitTable struct {
	current atomic.Pointer[limitRules] // what it points to never changes; nil: no rules

	mu    sync.Mutex    // held by those who replace current, not by those who read it
	hooks []*changeHook // in order of registration; appended to or replaced, never changed in place
}

// A LimitRule is what a LimitTable sets for one Key: both parts given, every model of the org, every org on the model,
// or, with Key{}, the defaults.
type LimitRule struct {
	Key    Key
	Limits Limits // never Limits{}; 0 in a field: not set here
}

// NewLimitTable returns a table with these defaults and no rules. Defaults below Blocked are taken for Blocked.
func NewLimitTable(defaults Limits) *LimitTable {
	for s := range Scope(scopes) {
		n := limitAt(&defaults, s)
		*n = max(*n, Blocked)
	}
	t := new(LimitTable)
	t.current.Store(&limitRules{defaults: defaults})
	return t
}

// Limits returns the limits of k. It takes no lock and allocates nothing. A field that neither a rule nor the defaults
// set is 0, with the meaning that 0 has in Limits.
func (t *LimitTable) Limits(k Key) Limits {
	var l Limits
	rules := t.current.Load()
	if rules == nil {
		return l
	}
	for s, ofScope := range &rules.ofScope {
		if len(ofScope) == 0 {
			continue // saves hashing the key
		}
		if rule, ok := ofScope[k.at(Scope(s))]; ok {
			fill(&l, &rule)
		}
	}
	fill(&l, &rules.defaults)
	return l
}

// Set makes l the rule of k, in place of an earlier one: of every model of an org with Key{Org: org}, of every org on a
// model with Key{Model: model}, and the defaults with Key{}. A field that is 0 is not set by this rule, so a rule whose
// fields are all 0 is no rule: to set Limits{} is to Delete.
//
// A value below Blocked, and a name that is not UTF-8 (JSON could not hold it), are errors that change nothing.
//
// Set copies the rules of its kind. To set thousands of them at once, load JSON.
func (t *LimitTable) Set(k Key, l Limits) error {
	if !utf8.ValidString(k.Org) || !utf8.ValidString(k.Model) {
		return fmt.Errorf("inflight: limits of %s: the name is not UTF-8", ruleName(k))
	}
	for s := range Scope(scopes) {
		if n := *limitAt(&l, s); n < Blocked {
			return fmt.Errorf("inflight: limits of %s: %s is %d: use Blocked (%d) to admit nothing, 0 to set nothing",
				ruleName(k), s, n, Blocked)
		}
	}
	t.change(func(rules *limitRules) *limitRules { return rules.with(k, l) })
	return nil
}

// Delete removes the rule of k, if there is one. Delete(Key{}) makes the defaults Limits{}.
func (t *LimitTable) Delete(k Key) {
	t.change(func(rules *limitRules) *limitRules { return rules.with(k, Limits{}) })
}

// Rules returns all rules, sorted by org, then by model. The defaults, if they set anything, come first, under Key{}.
func (t *LimitTable) Rules() []LimitRule {
	rules := t.current.Load()
	if rules == nil {
		return nil
	}
	var all []LimitRule
	if rules.defaults != (Limits{}) {
		all = append(all, LimitRule{Limits: rules.defaults})
	}
	for _, ofScope := range &rules.ofScope {
		for k, l := range ofScope {
			all = append(all, LimitRule{Key: k, Limits: l})
		}
	}
	slices.SortFunc(all, func(a, b LimitRule) int {
		return cmp.Or(cmp.Compare(a.Key.Org, b.Key.Org), cmp.Compare(a.Key.Model, b.Key.Model))
	})
	return all
}

// OnChange has f called after each change: a Set or a load that succeeded (also one that set what was there before),
// and a Delete of what was there. Limits gives the new limits by then. The functions are called in the order in which
// they were registered, on the goroutine that made the change, outside all locks: f may call every method of the table
// (a change that f makes calls f again). Changes made at the same time by several goroutines call f at the same time.
// If f panics, those after it are called all the same and the panic goes on to whoever made the change, which stands.
//
// After remove, no change calls f, save one that is calling it at this moment on another goroutine. To call remove
// again does nothing. A nil f panics.
func (t *LimitTable) OnChange(f func()) (remove func()) {
	if f == nil {
		panic("inflight: LimitTable.OnChange: nil function")
	}
	h := &changeHook{f: f}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hooks = append(t.hooks, h)
	return func() {
		h.removed.Store(true)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.hooks = slices.DeleteFunc(slices.Clone(t.hooks), func(other *changeHook) bool { return other == h })
	}
}

// A changeHook is one registration with OnChange. The same function may be registered twice.
type changeHook struct {
	f       func()
	removed atomic.Bool // a change that began before the removal still has the hook in its list
}

// change replaces the rules by what next makes of them, which must leave its argument as it is, and tells the hooks. If
// next returns its argument, nothing changed.
func (t *LimitTable) change(next func(*limitRules) *limitRules) { tell(t.replace(next)) }

// replace returns the hooks to tell.
func (t *LimitTable) replace(next func(*limitRules) *limitRules) []*changeHook {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.current.Load()
	if old == nil {
		old = new(limitRules)
	}
	rules := next(old)
	if rules == old {
		return nil
	}
	t.current.Store(rules)
	return t.hooks
}

// tell calls the hooks in order. If one panics or ends the goroutine, the rest are called on its way out.
func tell(hooks []*changeHook) {
	next := 0
	defer func() {
		if next < len(hooks) {
			tell(hooks[next:])
		}
	}()
	for next < len(hooks) {
		h := hooks[next]
		next++
		if !h.removed.Load() {
			h.f()
		}
	}
}

// limitRules are the rules of a table, by kind. Once a table points to them they never change.
type limitRules struct {
	defaults Limits

	// ofScope has the rules of a key, those of an org and those of a model, each under what Key.at gives for that scope.
	// The order of the scopes is the order in which the rules are asked. No rule is Limits{}.
	ofScope [ScopeTotal]map[Key]Limits
}

// kindOf returns the scope whose rules that of k is among, ScopeTotal for the defaults.
func kindOf(k Key) Scope {
	switch {
	case k.Org != "" && k.Model != "":
		return ScopeKey
	case k.Org != "":
		return ScopeOrg
	case k.Model != "":
		return ScopeModel
	default:
		return ScopeTotal
	}
}

// with returns the rules with that of k set, or removed if l sets nothing. r itself stays as it is, and is returned if
// there is nothing to remove.
func (r *limitRules) with(k Key, l Limits) *limitRules {
	next, remove := *r, l == (Limits{})
	kind := kindOf(k)
	if kind == ScopeTotal {
		if remove && r.defaults == l {
			return r
		}
		next.defaults = l
		return &next
	}
	if _, ok := r.ofScope[kind][k]; remove && !ok {
		return r
	}
	rules := maps.Clone(r.ofScope[kind])
	switch {
	case remove:
		delete(rules, k)
	case rules == nil:
		rules = map[Key]Limits{k: l}
	default:
		rules[k] = l
	}
	next.ofScope[kind] = rules
	return &next
}

// fill sets the fields that are 0 from a less specific rule.
func fill(l, from *Limits) {
	if l.Key == 0 {
		l.Key = from.Key
	}
	if l.Org == 0 {
		l.Org = from.Org
	}
	if l.Model == 0 {
		l.Model = from.Model
	}
	if l.Total == 0 {
		l.Total = from.Total
	}
}

// limitAt returns the field that holds in scope s.
func limitAt(l *Limits, s Scope) *int {
	return [scopes]*int{ScopeKey: &l.Key, ScopeOrg: &l.Org, ScopeModel: &l.Model, ScopeTotal: &l.Total}[s]
}

// ruleName names the rule of k in errors. Names are quoted, so that no two rules read the same.
func ruleName(k Key) string {
	org, model := "org "+strconv.Quote(k.Org), "model "+strconv.Quote(k.Model)
	switch {
	case k == Key{}:
		return "the defaults"
	case k.Model == "":
		return org
	case k.Org == "":
		return model
	default:
		return org + ", " + model
	}
}
