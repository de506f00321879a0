package modelstore

import (
	"maps"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// A shard is what the engine remembers of one. All times are in milliseconds. The logic is that of lease.lua in package
// redisstore, step by step and under the same names; the reasons are there.
type shard struct {
	leases map[string]int64 // process -> when its lease ends
	vanish int64            // when leases are forgotten
	epoch  epoch
	limits map[string]*limit
}

type epoch struct {
	name   int64 // 0: there is none
	ends   int64 // until when the shard learns
	vanish int64
}

type limit struct {
	fields map[string]field
	denied int64 // when anybody was last denied, or left little
	vanish int64
}

type field struct {
	granted int
	seq     uint64
	denied  int64 // when it was last denied something, 0 if it has got all since
	since   int64 // it got nothing since before then
	head    int   // what its first waiter lacks
	written int64
}

func newShard() *shard {
	return &shard{leases: make(map[string]int64), limits: make(map[string]*limit)}
}

func (s *shard) clone() *shard {
	c := *s
	c.leases = maps.Clone(s.leases)
	c.limits = make(map[string]*limit, len(s.limits))
	for name, l := range s.limits {
		d := *l
		d.fields = maps.Clone(l.fields)
		c.limits[name] = &d
	}
	return &c
}

// expire drops what the server would have dropped by now.
func (s *shard) expire(now int64) {
	if s.vanish <= now {
		clear(s.leases)
	}
	if s.epoch.vanish <= now {
		s.epoch = epoch{}
	}
	maps.DeleteFunc(s.limits, func(_ string, l *limit) bool { return l.vanish <= now })
}

func (s *shard) leave(id string, now int64) {
	s.expire(now)
	if s.leases[id] > now {
		s.dropEnded(now)
		delete(s.leases, id)
	}
}

func (s *shard) dropEnded(now int64) {
	maps.DeleteFunc(s.leases, func(_ string, ends int64) bool { return ends <= now })
}

// granted is how much of a limit is granted to those who have a lease.
func (s *shard) granted(name string, memory, now int64) int {
	sum := 0
	if l := s.limits[name]; l != nil && l.vanish > now {
		for id, f := range l.fields {
			if s.leases[id] > now && now-f.written < memory {
				sum += f.granted
			}
		}
	}
	return sum
}

var _ store.Store = (*Store)(nil)
