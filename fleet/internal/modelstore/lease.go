package modelstore

import (
	"time"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// A call is a store.Call while a shard executes it.
type call struct {
	*store.Call
	shard    *shard
	now      int64
	ttl      int64
	memory   int64
	learning int64
	live     int
}

func (s *shard) lease(c *store.Call, now int64) store.Reply {
	s.expire(now)
	r := call{Call: c, shard: s, now: now, ttl: c.TTL.Milliseconds()}
	r.memory = store.Memory * r.ttl
	known := s.leases[c.ID] > now
	r.learning = r.remember(known)
	r.renew()
	r.live = len(s.leases)
	reply := store.Reply{
		Epoch:    s.epoch.name,
		Known:    known,
		Learning: time.Duration(r.learning) * time.Millisecond,
		Ends:     now + r.ttl,
		Live:     r.live,
	}
	if c.Census {
		for id := range s.leases {
			if id < c.ID {
				reply.Rank++
			}
		}
	}
	if !known && r.learning == 0 {
		return reply
	}
	for i := range c.Entries {
		reply.Answers = append(reply.Answers, r.exchange(&c.Entries[i]))
	}
	return reply
}

// forgot says that the process has been promised a lease that is not known here. See lease.lua for what that means.
func (r *call) forgot(known bool) bool {
	e := &r.shard.epoch
	return !known && r.Ends > r.now && (e.ends <= r.now || e.name <= r.Ends-r.ttl)
}

// remember returns how long the shard goes on to learn, and begins a new epoch if there is no witness of the old one.
func (r *call) remember(known bool) int64 {
	s := r.shard
	witness := len(s.leases) == 0
	for _, ends := range s.leases {
		witness = witness || ends > r.now
	}
	untold := r.More || r.Ends > 0 && r.Ends-r.ttl < s.epoch.name // last answered before this epoch began
	switch learning := max(0, s.epoch.ends-r.now); {
	case s.epoch.name == 0:
		s.epoch.name = r.now
	case !witness || r.forgot(known):
		s.epoch.name = max(r.now, s.epoch.name+1)
	case learning == 0 || learning <= r.ttl && !untold:
		return learning
	}
	s.epoch.ends = r.now + r.ttl
	return r.ttl
}

// renew begins the lease of the process anew.
func (r *call) renew() {
	s := r.shard
	s.leases[r.ID] = r.now + r.ttl
	s.dropEnded(r.now)
	s.vanish = r.now + 2*store.Idle.Milliseconds()
	s.epoch.vanish = r.now + store.Idle.Milliseconds()
}

func (r *call) recent(t int64) bool {
	age := r.now - t
	return age >= 0 && age < store.Window.Milliseconds()
}

// exchange writes an entry and returns its answer.
func (r *call) exchange(e *store.Entry) store.Answer {
	l := r.shard.limits[e.Name]
	if l == nil {
		l = &limit{fields: make(map[string]field)}
	}
	own, ok := l.fields[r.ID]
	if ok && r.now-own.written >= r.memory {
		own, ok = field{}, false
	}
	if ok && own.seq > e.Seq {
		return store.Answer{Others: -1, Keep: -1, Stale: true}
	}
	noted := l.denied
	looked := r.learning > 0 || e.Need > 0 || e.Have > own.granted || r.recent(noted) || r.spoken(noted, &own, e, false)
	var v view
	left := 0
	if looked {
		v = r.survey(l, e.Limit)
		left = r.ahead(&v, &own)
	}

	next, short := r.next(&v, &own, e, left)
	if ok && own.seq == e.Seq {
		next.granted = own.granted
		short = e.Need > 0 && (r.learning > 0 || own.granted < e.Have+e.Need)
	} else {
		r.write(l, e.Name, next, r.learning == 0 && (short || e.Need > 0 && r.scarce(&v, e, next.granted)))
	}

	answer := store.Answer{Granted: next.granted, Others: -1, Short: short, Keep: -1}
	if looked {
		answer.Others = v.others
	}
	if looked && r.learning == 0 {
		rest := e.Limit - v.others - next.granted
		last := r.live > 1 && rest <= 0
		answer.Contended = v.contended || !short && (r.scarce(&v, e, next.granted) || r.spoken(noted, &own, e, last))
		answer.Keep = v.keep(e, next.granted, rest, left)
		answer.First = short && v.contended && left == 0 && own.seq != e.Seq && r.recent(own.denied)
	}
	return answer
}

// next returns what is to be written, and whether that is short.
func (r *call) next(v *view, own *field, e *store.Entry, left int) (next field, short bool) {
	next = field{granted: e.Have, seq: e.Seq, written: r.now}
	switch denied := r.recent(own.denied); {
	case r.learning > 0:
		next.granted = max(e.Have, e.Floor)
		return next, e.Need > 0
	case e.Need == 0:
		next.denied, next.since, next.head = own.denied, own.since, own.head
		return next, false
	default:
		if next.granted, short = r.grow(v, e, denied, left); !short {
			return next, false
		}
		next.denied, next.since, next.head = r.now, r.now, head(e)
		if denied && next.granted == e.Have {
			next.since = own.since
		}
		return next, true
	}
}

func (r *call) write(l *limit, name string, f field, noted bool) {
	l.fields[r.ID] = f
	l.vanish = r.now + r.memory
	if noted {
		l.denied = r.now
	}
	r.shard.limits[name] = l
}
