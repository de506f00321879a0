// Package modelstore is a model of the engine of a fleet, in memory and in the time of the process, which may be that of
// testing/synctest. It answers as package redisstore does, and has the faults of a server and of a network on demand.
package modelstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// ErrDown is the error of a call while the server is down.
var ErrDown = errors.New("modelstore: the server is down")

// A Fate is what becomes of a call on its way.
type Fate int

// What may become of a call. Whoever sent one that is lost waits for an answer until its context ends.
const (
	Delivered Fate = iota
	CallLost       // the server never sees it
	ReplyLost      // the server executes it, and the answer is lost
)

// Options are the faults that all calls are subject to. The functions are called one at a time.
type Options struct {
	// Latency is asked for each way of each call. nil means none. As calls that are on their way at the same time overtake
	// each other when their latencies differ, so they do on several connections.
	Latency func() time.Duration

	// Fate is asked for each call. nil means that all are delivered.
	Fate func(id string, shard int) Fate

	Now func() time.Time // the server's clock; nil means time.Now
}

// A Store is a [store.Store] in memory. The zero value has no faults. Safe for concurrent use.
type Store struct {
	opts Options

	mu     sync.Mutex
	shards map[int]*shard
	down   bool
	cut    map[string]bool
	counts Counts
}

// Counts are what has been sent to a store, whatever became of it.
type Counts struct {
	Calls   int // of Lease
	Entries int // in them
	Leaves  int // calls of Leave
}

// New returns a store that remembers nothing.
func New(opts Options) *Store { return &Store{opts: opts} }

// Lease implements [store.Store]. A call whose context ends on the way goes on and is executed, as with a real server.
func (s *Store) Lease(ctx context.Context, number int, c store.Call) (store.Reply, error) {
	if err := c.Check(); err != nil {
		return store.Reply{}, err
	}
	c.Entries = slices.Clone(c.Entries) // the caller may go on to change its own
	counts := Counts{Calls: 1, Entries: len(c.Entries)}
	return s.send(ctx, c.ID, number, counts, func(sh *shard, now int64) store.Reply { return sh.lease(&c, now) })
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, number int, id string) error {
	_, err := s.send(ctx, id, number, Counts{Leaves: 1}, func(sh *shard, now int64) store.Reply {
		sh.leave(id, now)
		return store.Reply{}
	})
	return err
}

// Granted returns how much of a limit is granted to those who have a lease that is valid, if ttl is that of their calls.
func (s *Store) Granted(number int, name string, ttl time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shardLocked(number).granted(name, store.Memory*ttl.Milliseconds(), s.nowLocked())
}

// Counts returns what has been sent since the store was made.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Store) nowLocked() int64 {
	if s.opts.Now != nil {
		return s.opts.Now().UnixMilli()
	}
	return time.Now().UnixMilli()
}

func (s *Store) shardLocked(i int) *shard {
	sh := s.shards[i]
	if sh == nil {
		if s.shards == nil {
			s.shards = make(map[int]*shard)
		}
		sh = newShard()
		s.shards[i] = sh
	}
	return sh
}
