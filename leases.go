package inflight

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

// Leases are the parts that a registry may use of limits that it shares with registries in other processes. Package
// fleet makes and keeps them; nobody else needs this type, unless to keep leases elsewhere than in Redis.
//
// The registry admits at each limit what has been granted to it, without asking anybody. What it lacks it asks for:
// Wake says when, Asks and Idle say what to write down, Answer and Fail what came of it. The lender is what keeps the
// sums of all processes below the limits; it must write down what it grants before it answers.
//
// Leases are spread over shards, which are renewed each for itself. Only one goroutine may work on a shard at a time. It
// must answer what it took by Asks, with Answer or Fail, before it takes more. Otherwise all methods are safe for
// concurrent use.
type Leases struct {
	// Immutable.
	reg      *Registry
	patience time.Duration // how long one waits for answers that is not to wait for room

	// Guarded by reg.mu, but for the channels.
	shards []leaseShard
	round  uint64 // of Idle
	leases [scopes]map[Key]*lease
}

// A Lease is what a registry tells the lender about one limit.
type Lease struct {
	Scope Scope
	Key   Key    // the part of the key that counts in Scope
	Limit int    // at least 0
	Seq   uint64 // larger in each later call about the same lease

	Have  int // what counts as granted here whatever the answer is; to be written down
	Need  int // the weight that is wanted on top by those who wait
	Head  int // of that, what the first one of them needs: less is of no use; 0: anything is
	Slack int // what would be convenient on top of that
	Share int // what may be in use here while nobody knows what others have; counts for Have if it is more

	Denials int // how often in a row there was not enough

	asked bool // it came by Asks
}

// A Grant is the lender's answer to a Lease.
type Grant struct {
	Granted int // what may be in use here from now on
	Others  int // what others have been granted; negative: unknown

	// Keep is what a release leaves of what is granted; what is above that is given up. Negative: all of it. Where Others is
	// unknown a Keep of 0 that was told before stays in force.
	Keep int

	// Tight says that somebody, here or elsewhere, did not get enough: then what is idle is given back soon.
	Tight bool

	// Denied says that there was not enough here, and for how long not to ask again. 0: there was enough.
	Denied time.Duration
}

// Terms say what a shard's leases are worth.
type Terms struct {
	Until time.Time // they hold until then
	Anew  bool      // the lender had forgotten this process: what it was granted before is void

	// Parts is by how many processes a limit is divided while leases do not hold, and Part, from 0, which of them this one
	// is: the first ones get what is left of an uneven division. With 0 parts nothing is admitted then.
	Parts, Part int

	// Learning says that the lender does not know what was granted. Until it does a lease that did not hold stands for its
	// Share.
	Learning bool
}

var errLeased = errors.New("inflight: Registry.Lease: its limits are leased already")

// Lease makes the registry lease its limits: from now on it admits at each limit no more than it has been granted
// there, at first nothing. What is in use stays. It can be done once. A request that is not to wait for room waits for
// the answers of the lender all the same, but not longer than patience, which must be positive.
func (r *Registry) Lease(shards int, patience time.Duration) (*Leases, error) {
	if shards < 1 {
		return nil, fmt.Errorf("inflight: Registry.Lease: %d shards: must be at least 1", shards)
	}
	if patience <= 0 {
		return nil, fmt.Errorf("inflight: Registry.Lease: patience of %v: must be positive", patience)
	}
	ls := &Leases{reg: r, patience: patience, shards: make([]leaseShard, shards)}
	for i := range ls.shards {
		s := &ls.shards[i]
		s.wake = make(chan struct{}, 1)
		s.leases.init()
		s.leases.push(&s.renewed)
		s.sharing = true
	}
	for s := range ls.leases {
		ls.leases[s] = make(map[Key]*lease)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leases != nil {
		return nil, errLeased
	}
	r.leases = ls
	for s := ScopeOrg; s <= ScopeModel; s++ { // in other processes they may be limited
		if !r.tracked[s] {
			r.tracked[s] = true
			r.countLocked(s)
		}
	}
	for s := range r.gates {
		for k, g := range r.gates[s] {
			ls.bindLocked(g, ls.ofLocked(Scope(s), k))
		}
	}
	ls.bindLocked(r.total, ls.ofLocked(ScopeTotal, Key{}))
	return ls, nil
}

func (ls *Leases) bindLocked(g *gate, l *lease) { g.lease, l.gate = l, g }

// ofLocked returns the lease of a limit, a new one if there is none.
func (ls *Leases) ofLocked(s Scope, k Key) *lease {
	if l := ls.leases[s][k]; l != nil {
		return l
	}
	l := &lease{scope: s, key: k, keep: -1}
	l.listed.of = l
	l.shard = &ls.shards[shardOf(s, k, len(ls.shards))]
	l.shard.leases.push(&l.listed)
	ls.leases[s][k] = l
	return l
}

// shardOf must give the same in every process.
func shardOf(s Scope, k Key, shards int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.String() + "\x00" + k.Org + "\x00" + k.Model))
	return int(h.Sum64() % uint64(shards)) //nolint:gosec // less than shards, which is positive
}

// Totals returns how many leases there are and how much is granted by them in each scope.
func (ls *Leases) Totals() (leases int, granted [scopes]int) {
	for i := range ls.shards {
		walk(ls.reg, &ls.shards[i].leases, quickBatch, nil, func(l *lease) bool {
			leases++
			granted[l.scope] += l.granted
			return true
		})
	}
	return leases, granted
}

// Shards returns the number of shards.
func (ls *Leases) Shards() int { return len(ls.shards) }

// Wake returns a channel that gets a value when there may be something to ask or to give back.
func (ls *Leases) Wake(shard int) <-chan struct{} { return ls.shards[shard].wake }

// Lapsed says that the leases of a shard do not hold any more, if they ever did: the lender must be asked for new terms.
func (ls *Leases) Lapsed(shard int) bool {
	now := ls.reg.now()
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	return now >= ls.shards[shard].until
}

// Renew says that the lender has renewed a shard, on these terms. Where the leases had lapsed before, each begins again
// with what is in use: nobody who is in flight is cut off, and what others were granted meanwhile is theirs.
func (ls *Leases) Renew(shard int, t Terms) {
	now := ls.reg.now()
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	s := &ls.shards[shard]
	lapsed := now >= s.until || t.Anew
	s.until, s.parts, s.part, s.down = t.Until.Sub(ls.reg.start), t.Parts, t.Part, false
	s.sharing = t.Learning && (lapsed || s.sharing)
	if !lapsed {
		return
	}
	for l := range s.leases.all {
		l.granted = l.inUse()
		if s.sharing {
			l.granted = max(l.granted, s.share(l.limit))
		}
		l.written = max(l.written, l.granted)
	}
	s.settleLocked(ls.reg, now)
}

// Fall says that the leases of a shard have lapsed and the lender cannot be reached: from now on each limit is divided as
// the terms say. Where the leases still hold it changes nothing.
func (ls *Leases) Fall(shard int, t Terms) {
	now := ls.reg.now()
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	s := &ls.shards[shard]
	if now < s.until {
		return
	}
	s.parts, s.part, s.down = t.Parts, t.Part, true
	for _, l := range s.asked {
		l.asking = false
	}
	s.asked = s.asked[:0]
	s.settleLocked(ls.reg, now)
	for l := range s.leases.all {
		if l.gate == nil && l.written == 0 && !l.asking {
			ls.forgetLocked(l) // or keys that are used once would pile up for as long as the lender is away
		}
	}
}

func (s *leaseShard) settleLocked(r *Registry, now time.Duration) {
	for l := range s.leases.all {
		r.settleLeaseLocked(l, now)
	}
}
