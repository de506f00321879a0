package modelstore

import (
	"context"
	"time"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// Down makes the server refuse calls, or accept them again. It keeps what it remembers.
func (s *Store) Down(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Cut cuts the process off from the server, or ends that: its calls and the answers to them are lost.
func (s *Store) Cut(id string, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut == nil {
		s.cut = make(map[string]bool)
	}
	s.cut[id] = cut
}

// Flush makes the server forget everything.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = nil
}

// A Snapshot is what a server remembered at some time. It does not change.
type Snapshot struct {
	shards map[int]*shard
}

// Snapshot returns what the server remembers.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{shards: clone(s.shards)}
}

// Restore makes the server remember what it did at the time of the snapshot and nothing else: a replica took over that had
// not heard of more, or the server began anew with data that were saved then.
func (s *Store) Restore(old Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = clone(old.shards)
}

func clone(shards map[int]*shard) map[int]*shard {
	c := make(map[int]*shard, len(shards))
	for number, sh := range shards {
		c[number] = sh.clone()
	}
	return c
}

// An outcome is what comes back from the server.
type outcome struct {
	reply store.Reply
	err   error
}

// send takes a call to the server and its answer back.
func (s *Store) send(
	ctx context.Context, id string, number int, counts Counts, execute func(*shard, int64) store.Reply,
) (store.Reply, error) {
	if err := ctx.Err(); err != nil {
		return store.Reply{}, err // nothing is sent
	}
	there, back, fate := s.depart(id, number, counts)
	answer := make(chan outcome, 1)
	after(there, func() {
		out, arrived := s.arrive(id, number, fate, execute)
		if !arrived {
			return
		}
		after(back, func() {
			if !s.isCut(id) {
				answer <- out
			}
		})
	})
	select {
	case out := <-answer: // even if the context has ended at the same time
		return out.reply, out.err
	default:
	}
	select {
	case out := <-answer:
		return out.reply, out.err
	case <-ctx.Done():
		return store.Reply{}, ctx.Err()
	}
}

// depart counts a call and decides on its way.
func (s *Store) depart(id string, number int, counts Counts) (there, back time.Duration, fate Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Calls += counts.Calls
	s.counts.Entries += counts.Entries
	s.counts.Leaves += counts.Leaves
	if s.opts.Latency != nil {
		there, back = s.opts.Latency(), s.opts.Latency()
	}
	if s.opts.Fate != nil {
		fate = s.opts.Fate(id, number)
	}
	return there, back, fate
}

// arrive executes a call that has reached the server. Without an answer, it returns false.
func (s *Store) arrive(
	id string, number int, fate Fate, execute func(*shard, int64) store.Reply,
) (out outcome, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut[id] || fate == CallLost {
		return out, false
	}
	if s.down {
		return outcome{err: ErrDown}, true
	}
	return outcome{reply: execute(s.shardLocked(number), s.nowLocked())}, fate != ReplyLost
}

func (s *Store) isCut(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut[id]
}

// after runs f at once if there is nothing to wait for.
func after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}
