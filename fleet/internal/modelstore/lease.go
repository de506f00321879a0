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
	r.learning = r.remember()
	known := r.renew()
	r.live = len(s.leases)
	reply := store.Reply{
		Epoch:    s.epoch.name,
		Known:    known,
		Learning: time.Duration(r.learning) * time.Millisecond,
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

// remember returns how long the shard goes on to learn, and begins a new epoch if there is no witness of the old one.
func (r *call) remember() int64 {
	s := r.shard
	witness := len(s.leases) == 0
	for _, ends := range s.leases {
		witness = witness || ends > r.now
	}
	if s.epoch.name == 0 || !witness {
		name := r.now
		if s.epoch.name != 0 {
			name = max(r.now, s.epoch.name+1)
		}
		s.epoch = epoch{name: name, ends: r.now + r.ttl}
	}
	return max(0, s.epoch.ends-r.now)
}

// renew returns whether the process had a lease that was valid.
func (r *call) renew() bool {
	s := r.shard
	known := s.leases[r.ID] > r.now
	s.leases[r.ID] = r.now + r.ttl
	s.dropEnded(r.now)
	s.vanish = r.now + 2*store.Idle.Milliseconds()
	s.epoch.vanish = r.now + store.Idle.Milliseconds()
	return known
}

func (r *call) recent(t int64) bool {
	age := r.now - t
	return age >= 0 && age < store.Window.Milliseconds()
}

// A view is what others have of a limit. even is the share of each who has or lacks something, the caller included, and fair
// is the same but not nothing; owed is what those who were denied not long ago have less than what is fair, and waiting is
// how many of them have come back and were denied again.
type view struct {
	others, even, fair, owed, waiting int
	contended                         bool
}

func (r *call) survey(l *limit, size int) view {
	v := view{}
	claimants := 1
	var lacking []field
	for id, f := range l.fields {
		switch _, alive := r.shard.leases[id]; {
		case id == r.ID:
			continue
		case !alive || r.now-f.written >= r.memory:
			delete(l.fields, id)
			continue
		case r.recent(f.denied):
			lacking = append(lacking, f)
			claimants++
		case f.granted > 0:
			claimants++
		}
		v.others += f.granted
	}
	v.even = size / claimants
	v.fair = max(1, v.even)
	for _, f := range lacking {
		if f.granted < v.fair {
			v.owed += v.fair - f.granted
			if f.again {
				v.waiting++
			}
		}
	}
	v.contended = len(lacking) > 0
	return v
}

// grow returns how much is granted, and whether that is short. See lease.lua for who gets what.
func (r *call) grow(v view, e *store.Entry, denied bool) (granted int, short bool) {
	free := e.Limit - v.others - e.Have
	give := max(0, min(e.Need, free))
	due := max(0, v.fair-e.Have)
	if !denied {
		due = max(0, min(due, free-v.waiting))
	}
	give = max(min(due, give), min(give, free-v.owed))
	if give < e.Need {
		return e.Have + give, true
	}
	if !denied && !v.contended {
		give += min(e.Slack, (free-give)/(2*r.live))
	}
	return e.Have + give, false
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
	looked := r.learning > 0 || e.Need > 0 || e.Have > own.granted || r.recent(l.denied)
	var v view
	if looked {
		v = r.survey(l, e.Limit)
	}

	next, short := field{granted: e.Have, seq: e.Seq, denied: own.denied, again: own.again, written: r.now}, false
	switch {
	case r.learning > 0:
		next.granted, next.denied, next.again, short = max(e.Have, e.Floor), 0, false, e.Need > 0
	case e.Need > 0:
		next.granted, short = r.grow(v, e, r.recent(own.denied))
		next.denied, next.again = 0, short && r.recent(own.denied)
		if short {
			next.denied = r.now
		}
	}
	if ok && own.seq == e.Seq {
		next.granted = own.granted
		short = e.Need > 0 && (r.learning > 0 || own.granted < e.Have+e.Need)
	} else {
		r.write(l, e.Name, next, r.learning == 0 && (short || e.Need > 0 && r.scarce(v, e, next.granted)))
	}

	answer := store.Answer{Granted: next.granted, Others: -1, Short: short, Keep: -1}
	if looked {
		answer.Others = v.others
	}
	if looked && r.learning == 0 {
		answer.Contended = v.contended || !short && r.scarce(v, e, next.granted)
		answer.Keep = v.keep(e, next.granted)
	}
	return answer
}

// scarce says that little is left. See lease.lua for how much that is.
func (r *call) scarce(v view, e *store.Entry, granted int) bool {
	return r.live > 1 && e.Limit-v.others-granted < min(e.Limit/2, r.live)
}

func (v view) keep(e *store.Entry, granted int) int {
	switch rest := e.Limit - v.others - granted; {
	case rest < 0:
		return 0
	case v.owed > rest && e.Need == 0:
		return v.even
	case v.owed > rest:
		return v.fair
	}
	return -1
}

func (r *call) write(l *limit, name string, f field, noted bool) {
	l.fields[r.ID] = f
	l.vanish = r.now + r.memory
	if noted {
		l.denied = r.now
	}
	r.shard.limits[name] = l
}
