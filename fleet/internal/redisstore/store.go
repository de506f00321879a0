// Package redisstore keeps the leases of a fleet in Redis or Valkey, 6.2 or newer, standalone or Cluster. Each call is one
// script for one shard, whose keys share a hash tag.
package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

var (
	//go:embed lease.lua
	leaseScript string
	//go:embed leave.lua
	leaveScript string
)

// What the scripts answer, and what they read besides the keys.
const (
	headReply  = 6 // epoch, known, learning, ends, live, rank
	entryReply = 4 // granted, others, flags, keep
	headArgs   = 8 // id, ttl, window, memory, idle, census, more, promised
	entryArgs  = 7 // limit, seq, have, need, head, slack, floor

	flagShort     = 1
	flagContended = 2
	flagStale     = 4
	flagFirst     = 8
)

// A Store is a [store.Store] on a server or cluster. Safe for concurrent use.
type Store struct {
	client       redis.UniversalClient
	prefix       string
	lease, leave *redis.Script
}

// New returns a store whose keys begin with "{prefix:". Fleets that share a server need different prefixes. A prefix must
// contain no braces, or the keys of a shard may end up on different nodes of a cluster.
func New(client redis.UniversalClient, prefix string) *Store {
	return &Store{
		client: client,
		prefix: prefix,
		lease:  redis.NewScript(leaseScript),
		leave:  redis.NewScript(leaveScript),
	}
}

// Lease implements [store.Store]. If it fails, the shard may have executed the call, some of it, or nothing.
func (s *Store) Lease(ctx context.Context, shard int, c store.Call) (store.Reply, error) {
	if err := c.Check(); err != nil {
		return store.Reply{}, err
	}
	tag := s.tag(shard)
	keys := make([]string, 0, 2+len(c.Entries))
	keys = append(keys, tag+"P", tag+"E")
	args := make([]any, 0, headArgs+entryArgs*len(c.Entries))
	args = append(args, c.ID, c.TTL.Milliseconds(), store.Window.Milliseconds(),
		store.Memory*c.TTL.Milliseconds(), store.Idle.Milliseconds(), c.Census, c.More, c.Ends)
	for i := range c.Entries {
		e := &c.Entries[i]
		keys = append(keys, tag+"H:"+e.Name)
		args = append(args, e.Limit, e.Seq, e.Have, e.Need, e.Head, e.Slack, e.Floor)
	}
	numbers, err := s.lease.Run(ctx, s.client, keys, args...).Int64Slice()
	if err != nil {
		return store.Reply{}, fmt.Errorf("redisstore: lease: %w", err)
	}
	return parse(numbers, len(c.Entries))
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, shard int, id string) error {
	if err := s.leave.Run(ctx, s.client, []string{s.tag(shard) + "P"}, id).Err(); err != nil {
		return fmt.Errorf("redisstore: leave: %w", err)
	}
	return nil
}

// tag is what all keys of a shard begin with. What is in braces decides which node of a cluster they are on.
func (s *Store) tag(shard int) string {
	return "{" + s.prefix + ":" + strconv.Itoa(shard) + "}"
}

func parse(numbers []int64, entries int) (store.Reply, error) {
	if len(numbers) < headReply {
		return store.Reply{}, fmt.Errorf("redisstore: a reply of %d numbers", len(numbers))
	}
	reply := store.Reply{
		Epoch:    numbers[0],
		Known:    numbers[1] == 1,
		Learning: time.Duration(numbers[2]) * time.Millisecond,
		Ends:     numbers[3],
		Live:     int(numbers[4]),
		Rank:     int(numbers[5]),
	}
	rest := numbers[headReply:]
	if !reply.Known && reply.Learning == 0 {
		entries = 0
	}
	if len(rest) != entryReply*entries {
		return store.Reply{}, fmt.Errorf("redisstore: a reply of %d numbers to %d entries", len(numbers), entries)
	}
	for ; len(rest) > 0; rest = rest[entryReply:] {
		flags := rest[2]
		reply.Answers = append(reply.Answers, store.Answer{
			Granted:   int(rest[0]),
			Others:    int(rest[1]),
			Short:     flags&flagShort != 0,
			Contended: flags&flagContended != 0,
			Stale:     flags&flagStale != 0,
			First:     flags&flagFirst != 0,
			Keep:      int(rest[3]),
		})
	}
	return reply, nil
}
