package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/modelstore"
	"github.com/inflight-go/inflight/fleet/internal/redisstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

const (
	ttl   = 30 * time.Second
	shard = 3
)

// A clock is set by the test alone.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{now: time.UnixMilli(1_700_000_000_000)} }

// A server is a miniredis on such a clock, with a client.
type server struct {
	*miniredis.Miniredis
	client *redis.Client
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{Miniredis: miniredis.RunT(t)}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, s.client.Close()) })
	return s
}

// An engine is a store under test with the clock that it goes by.
type engine struct {
	t *testing.T
	store.Store
	clock  *clock
	server *server // nil for the model
	seq    uint64
	flush  func()
}

// onEach runs a test on the scripts and on the model of them.
func onEach(t *testing.T, test func(e *engine)) {
	t.Helper()
	t.Run("scripts", func(t *testing.T) { test(newEngine(t)) })
	t.Run("model", func(t *testing.T) {
		c := newClock()
		model := modelstore.New(modelstore.Options{Now: func() time.Time { return c.now }})
		test(&engine{t: t, Store: model, clock: c, flush: model.Flush})
	})
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	s := newServer(t)
	e := &engine{t: t, Store: redisstore.New(s.client, "inflight"), clock: newClock(), server: s, flush: s.FlushAll}
	s.SetTime(e.clock.now)
	return e
}

// step lets time pass.
func (e *engine) step(d time.Duration) {
	e.clock.now = e.clock.now.Add(d)
	if e.server != nil {
		e.server.SetTime(e.clock.now)
		e.server.FastForward(d)
	}
}

// setBack sets the clock back. A server keeps in mind when a key expires, not how long it has still to live.
func (e *engine) setBack(d time.Duration) {
	e.clock.now = e.clock.now.Add(-d)
	if e.server != nil {
		e.server.SetTime(e.clock.now)
		for _, key := range e.server.Keys() {
			e.server.SetTTL(key, e.server.TTL(key)+d)
		}
	}
}

// ends is when a lease ends that begins now.
func (e *engine) ends() int64 { return e.clock.now.Add(ttl).UnixMilli() }

// call renews a lease and exchanges entries, each with a new Seq where it has none.
func (e *engine) call(id string, entries ...store.Entry) store.Reply {
	e.t.Helper()
	for i := range entries {
		if e.seq++; entries[i].Seq == 0 {
			entries[i].Seq = e.seq
		}
	}
	reply, err := e.Lease(e.t.Context(), shard, store.Call{ID: id, TTL: ttl, Entries: entries})
	require.NoError(e.t, err)
	return reply
}

// ask exchanges one entry and returns its answer.
func (e *engine) ask(id string, entry store.Entry) store.Answer {
	e.t.Helper()
	reply := e.call(id, entry)
	require.Len(e.t, reply.Answers, 1)
	return reply.Answers[0]
}

// learned gives leases to processes and lets the time pass in which the shard learns.
func (e *engine) learned(ids ...string) {
	e.t.Helper()
	for range 3 {
		for _, id := range ids {
			e.call(id)
		}
		e.step(ttl / 2)
	}
	for _, id := range ids {
		require.Zero(e.t, e.call(id).Learning)
	}
}

func (e *engine) leave(id string) {
	e.t.Helper()
	require.NoError(e.t, e.Leave(e.t.Context(), shard, id))
}
