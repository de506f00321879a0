// Package store says what a fleet needs of the engine that keeps its leases. There are two such engines: Redis or Valkey,
// by scripts (package redisstore), and a model of them for simulations (package modelstore).
package store

import (
	"context"
	"time"
)

// Shards is how many shards the limits are spread over, by default.
const Shards = 16

// Window is how long a process that was short counts as one that waits for room: as long, others keep to their fair share.
const Window = 500 * time.Millisecond

// Memory is for how many times the TTL of a call its entries count, if the process has a lease but says nothing new about
// them. Each entry with something in use is to be repeated more often, but a process that has very many and calls that are
// slow may need long to get through; this is for what was forgotten: an entry that came late, or came back with an old
// snapshot, holds up room no longer than that.
const Memory = 20

// Idle is how long a shard is remembered that nobody calls. Whoever calls later finds one that learns.
const Idle = 24 * time.Hour

// Max is the largest number that may stand in an Entry: engines count in floating point.
const Max = 1 << 53

// A Store keeps the leases of the processes of a fleet. Each method is one call for one shard, which the engine executes
// as a whole. What is written is absolute, so a call that is lost, late or repeated does no harm.
type Store interface {
	// Lease renews the lease of a process on a shard and exchanges the entries. See Entry and Reply.
	Lease(ctx context.Context, shard int, c Call) (Reply, error)

	// Leave ends the lease of a process: all that it was granted is free at once.
	Leave(ctx context.Context, shard int, id string) error
}

// A Call is what a process says to a shard.
type Call struct {
	ID      string        // of the process: random, lower case hex, new with each start
	TTL     time.Duration // how long the lease is from now on, on the engine's clock; at least 1 ms, the same everywhere
	Census  bool          // whether the rank is asked for, which costs time in proportion to the processes
	Entries []Entry       // may be empty: then the lease is renewed, no more

	// More says that the process has not told yet all that it has in this epoch. A shard that learns then goes on to learn
	// for at least the TTL.
	More bool

	// Ends is Reply.Ends of the last reply to the process, 0 if there was none. A shard that does not know a process whose
	// lease should still be valid has lost what it acknowledged, and begins to learn.
	Ends int64
}

// An Entry is what a process says about one limit.
type Entry struct {
	Name  string // of the limit; two limits never have the same
	Limit int    // at least 0; a limit that is blocked is never leased
	Seq   uint64 // per process and limit: larger in each later call; the same only if the whole entry is the same

	Have  int // what the process goes on to count as granted, whatever the answer is
	Need  int // what it wants on top for requests that wait; 0: nothing, see Answer.Others
	Head  int // how much of Need the first of them waits for: less is of no use; 0: any is; at most Need
	Slack int // what it would like on top of that, to ask less often
	Floor int // counts instead of Have, where it is more, while the shard is learning
}

// A Reply is what the shard answers.
type Reply struct {
	// Epoch names the memory of the shard. It changes when the shard has lost its memory and begins to learn.
	Epoch int64

	// Known says that the process had a lease that was valid when the call came. If it had none, and the shard is not
	// learning, others may have been granted what it believes to be its own: then the lease begins with this call but none
	// of the entries was read, and Answers is empty.
	Known bool

	// Learning is how long the shard goes on to grant nothing because it has lost its memory, and those who have something
	// must be given the time to say so. 0: it is not learning.
	Learning time.Duration

	Ends int64 // when the lease of the process ends unless it is renewed, in ms of the engine's clock

	Live int // processes that have a lease, this one too
	Rank int // how many of them have a smaller ID; asked for by Census

	Answers []Answer // one to each entry, in their order
}

// An Answer is what became of an Entry.
type Answer struct {
	Granted int // what the process may have in use, from now on until a later answer; never less than Have
	Others  int // what others are granted; -1: not looked at, as Need is 0, no room short and Have not more than is known

	// Short says that there was not room for all that was needed. The shard remembers the time.
	Short bool

	// First says that it was short again, as others are, and nobody has waited longer: what falls free is left to this
	// process, which should come back soon.
	First bool

	// Contended says that some other process was short not long ago or, where Need is 0, since this one last spoke of the
	// limit, or that little is left: what is idle should be given back.
	Contended bool

	// Keep is how much of Granted a release should leave as it is; what is above that should be given back as it falls
	// free, because others have a better right to it. Negative: all of it, also when others were not looked at.
	Keep int

	// Stale says that the shard has a later entry of this process: this one changed nothing, and the rest of the answer
	// means nothing.
	Stale bool
}
