package inflight

import "slices"

// A gate is the place where one limit is kept: that of a key, an org, a model, or the whole registry. All four work
// alike. A gate is in the registry exactly while somebody holds or waits, so an idle key costs nothing and nothing
// ever expires. Everything in it is guarded by Registry.mu.
type gate struct {
	scope Scope
	key   Key // the part of the key that counts here, see Key.at

	inUse   int // the sum of the weights of the live holders counted here: the only count there is
	holders int // how many they are
	waiters int // those who need this gate, wherever they are queued

	queue  list[waiter] // those queued at this gate, oldest first
	queued int
	brief  int // of waiters, those that wait for nothing but the answer of a lender

	open  bool   // it is in the registry
	lease *lease // how much of the limit may be in use here, nil unless it is leased

	// path leads from the gate of a key through all the gates where a slot of that key counts: itself, its org, its
	// model, the total. Orgs and models are left out as long as nobody ever limited any, see trackLocked.
	path  []*gate
	steps [scopes]*gate // behind path

	listed elem[gate] // in Registry.keys while live, if it is of a key
}

// pathLocked returns the path of a key. Where there is no gate yet, because nobody holds or waits, a blank one stands
// for it. What it returns is good until the next call.
func (r *Registry) pathLocked(k Key) []*gate {
	if g := r.gates[ScopeKey][k]; g != nil {
		return g.path
	}
	path, i := r.blanks[ScopeKey].path, 0
	for s := ScopeOrg; s <= ScopeModel; s++ {
		if !r.tracked[s] {
			continue
		}
		i++
		if path[i] = r.gates[s][k.at(s)]; path[i] == nil {
			path[i] = &r.blanks[s]
		}
	}
	if r.leases != nil {
		for _, g := range path {
			if g.scope != ScopeTotal && g == &r.blanks[g.scope] {
				g.lease = r.leases.leases[g.scope][k.at(g.scope)]
			}
		}
	}
	return path
}

// openLocked makes the gates of q that are missing. The caller must count a holder or a waiter there before it gives up
// the lock.
func (r *Registry) openLocked(q *request) {
	if q.opened {
		return
	}
	q.opened = true
	if q.gate == &r.blanks[ScopeKey] {
		q.gate = r.makeGateLocked(q.key)
	}
	for _, k := range q.others {
		q.also = append(q.also, r.gateLocked(k))
	}
}

// gateLocked returns the gate of a key, a new one if there is none.
func (r *Registry) gateLocked(k Key) *gate {
	if g := r.gates[ScopeKey][k]; g != nil {
		return g
	}
	return r.makeGateLocked(k)
}

// makeGateLocked makes the gate of a key, and all that is missing on its path.
func (r *Registry) makeGateLocked(k Key) *gate {
	g := r.newGateLocked(ScopeKey, k)
	r.linkLocked(g)
	g.listed.insertAfter(&r.keys.root) // in front: what a walk has passed it meets no second time
	return g
}

// linkLocked lays the path of the gate of a key, over gates that it shares with other keys; that of the blank gate leads
// over blank ones.
func (r *Registry) linkLocked(g *gate) {
	if len(g.path) == 2 && !r.tracked[ScopeOrg] && !r.tracked[ScopeModel] {
		return // it leads from g to the total already, from when g was used before
	}
	g.path = append(g.steps[:0], g)
	for s := ScopeOrg; s <= ScopeModel; s++ {
		if !r.tracked[s] {
			continue
		}
		shared := &r.blanks[s]
		if g != &r.blanks[ScopeKey] {
			if shared = r.gates[s][g.key.at(s)]; shared == nil {
				shared = r.newGateLocked(s, g.key.at(s))
			}
		}
		g.path = append(g.path, shared)
	}
	g.path = append(g.path, r.total)
}

func (r *Registry) newGateLocked(s Scope, k Key) *gate {
	g := r.spareGates.take()
	if g == nil {
		g = &gate{}
		g.listed.of = g
		g.queue.init()
	}
	g.scope, g.open = s, true
	if r.leases != nil {
		r.leases.bindLocked(g, r.leases.ofLocked(s, k))
	}
	if g.key != k { // the last to come is the next to go, so it often is
		g.key = k
	}
	if r.gates[s] == nil {
		r.gates[s] = make(map[Key]*gate)
	}
	r.gates[s][k] = g
	r.mostGates[s] = max(r.mostGates[s], len(r.gates[s]))
	return g
}

// dropLocked removes a gate if nobody holds or waits there any more.
func (r *Registry) dropLocked(g *gate) {
	if g.holders > 0 || g.waiters > 0 || g.scope == ScopeTotal || !g.open {
		return
	}
	g.open = false
	if g.lease != nil {
		g.lease, g.lease.gate = nil, nil
	}
	gates := r.gates[g.scope]
	delete(gates, g.key)
	if len(gates) == 0 && r.mostGates[g.scope] > keep {
		r.gates[g.scope], r.mostGates[g.scope] = nil, 0 // a map never shrinks: give a large one back
	}
	if g.scope == ScopeKey {
		g.listed.remove()
	}
	r.spareGates.put(g)
}

// A claim is what a holder has and a waiter wants: weight at the gates of its keys.
type claim struct {
	gate   *gate   // of its key
	also   []*gate // of its Also keys, each another one
	weight int
}

// places returns every gate where the claim counts, each once: two keys may share an org or a model, and all share the
// total. It may use buf.
func (c *claim) places(buf []*gate) []*gate {
	if len(c.also) == 0 {
		return c.gate.path
	}
	buf = append(buf, c.gate.path...)
	for _, key := range c.also {
		for _, g := range key.path {
			if !slices.Contains(buf, g) {
				buf = append(buf, g)
			}
		}
	}
	return buf
}

// trackLocked begins to count orgs or models when a limit of q asks for it the first time. Registries that never limit
// them do not pay for it on each acquire, and those that begin late count what is live already: a limit bears on every
// slot, also on one taken before the limit existed. It must come before anybody asks where q is blocked.
func (r *Registry) trackLocked(q *request) {
	for i := range q.keys() {
		_, limits := q.at(i)
		for s := ScopeOrg; s <= ScopeModel; s++ {
			if limits[s] != Unlimited && !r.tracked[s] {
				r.tracked[s] = true
				r.countLocked(s)
			}
		}
	}
}

// countLocked makes the gates of scope s and counts there who is live or waits.
func (r *Registry) countLocked(s Scope) {
	for g := range r.keys.all {
		r.linkLocked(g)
	}
	r.linkLocked(&r.blanks[ScopeKey])
	var buf [8]*gate
	for h := range r.holders.all {
		for _, g := range h.places(buf[:0]) {
			if g.scope == s {
				g.inUse += h.weight
				g.holders++
			}
		}
	}
	for w := range r.waiters.all {
		for _, g := range w.places(buf[:0]) {
			if g.scope == s {
				g.waiters++
			}
		}
	}
}
