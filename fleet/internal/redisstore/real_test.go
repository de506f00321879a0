//go:build unix

package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redisstore"
	"github.com/inflight-go/inflight/fleet/internal/redistest"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// realEngine makes an engine of a client of a real server, whose clock goes by itself. In its shard, which has learned before,
// a and b have leases.
func realEngine(t *testing.T, client redis.UniversalClient, at int) *engine {
	t.Helper()
	require.NoError(t, client.Set(t.Context(), fmt.Sprintf("{inflight:%d}E", at), "1:1", 0).Err())
	e := &engine{t: t, Store: redisstore.New(client, "inflight")}
	for i, id := range []string{"a", "b"} {
		reply, err := e.Lease(t.Context(), at, store.Call{ID: id, TTL: ttl})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(ttl), time.UnixMilli(reply.Ends), time.Hour)
		require.Equal(t, store.Reply{Epoch: 1, Ends: reply.Ends, Live: i + 1}, reply)
	}
	return e
}

func TestRealServer(t *testing.T) {
	server := redistest.Start(t)
	e := realEngine(t, server.Client(), shard)
	fresh, err := e.Lease(t.Context(), shard+1, store.Call{ID: "a", TTL: ttl})
	require.NoError(t, err)
	require.Equal(t, ttl, fresh.Learning)
	require.WithinDuration(t, time.Now(), time.UnixMilli(fresh.Epoch), time.Hour)

	require.Equal(t, store.Answer{Granted: 3, Contended: true, Keep: -1}, e.ask("a", store.Entry{Name: "x", Limit: 4, Need: 3}))
	require.Equal(t, store.Answer{Granted: 1, Others: 3, Short: true, Keep: -1},
		e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 2}))
	require.True(t, e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 3, Need: 1, Seq: 9}).Short)
	require.True(t, e.ask("a", store.Entry{Name: "x", Limit: 4, Have: 3, Need: 1, Seq: 8}).Stale)

	server.ScriptFlush()
	e.leave("a")
	require.Equal(t, store.Answer{Granted: 4, Keep: -1}, e.ask("b", store.Entry{Name: "x", Limit: 4, Have: 1, Need: 3}))
	for range 2 { // as it is granted, and as it is written
		most := store.Entry{Name: "y", Limit: store.Max, Seq: store.Max, Need: store.Max}
		require.Equal(t, store.Max, e.ask("b", most).Granted)
	}

	policy, err := redisstore.New(server.Client(), "inflight").Policy(t.Context())
	require.NoError(t, err)
	require.Equal(t, "noeviction", policy)
}

// A server without memory refuses a call as a whole: no lease is renewed, nothing is granted and nothing dropped.
func TestRealServerWithoutMemory(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	e := realEngine(t, client, shard)
	e.ask("a", store.Entry{Name: "x", Limit: 4, Need: 3})
	e.leave("b") // its field would be dropped by the next that looks
	data := func() (all []any) {
		for _, key := range []string{keyP, keyE, keyH} {
			all = append(all, server.Exec("DUMP", key))
		}
		return all
	}
	before := data()
	server.Exec("CONFIG", "SET", "maxmemory", "1")
	_, err := e.Lease(t.Context(), shard, store.Call{ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Limit: 4, Seq: 100, Need: 1}}})
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, data())
	e.leave("a")
	require.Zero(t, server.Exec("EXISTS", keyP), "whoever leaves frees memory")
}

// What the scripts may do is all that the user of a fleet needs.
func TestRealServerWithFewRights(t *testing.T) {
	server := redistest.Start(t, redistest.Args("--user", "fleet", "on", ">secret", "~{inflight:*", "-@all", "+hello", "+client",
		"+evalsha", "+eval", "+time", "+get", "+set", "+pexpire", "+zadd", "+zscore", "+zcard", "+zcount", "+zrange",
		"+zrem", "+zremrangebyscore", "+hmget", "+hgetall", "+hset", "+hdel", "+info"))
	e := realEngine(t, server.Client(func(o *redis.Options) { o.Username, o.Password = "fleet", "secret" }), shard)
	require.True(t, e.ask("a", store.Entry{Name: "x", Limit: 4, Need: 5}).Short)
	e.leave("a")
	require.Equal(t, 4, e.ask("b", store.Entry{Name: "x", Limit: 4, Need: 4}).Granted)
	_, err := e.Lease(t.Context(), shard, store.Call{ID: "b", TTL: ttl, Census: true})
	require.NoError(t, err)

	client := server.Client(func(o *redis.Options) { o.Username, o.Password = "fleet", "secret" })
	policy, err := redisstore.New(client, "inflight").Policy(t.Context())
	require.NoError(t, err)
	require.Equal(t, "noeviction", policy)
}

// Each shard is on one node, whichever.
func TestRealCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client()
	for at := range store.Shards {
		e := realEngine(t, client, at)
		var entries []store.Entry
		for i := range 5 {
			entries = append(entries, store.Entry{Name: fmt.Sprint("x", i), Limit: 2, Need: 1})
		}
		reply, err := e.Lease(t.Context(), at, store.Call{ID: "a", TTL: ttl, Entries: entries})
		require.NoError(t, err)
		require.Len(t, reply.Answers, 5)
		require.NoError(t, e.Leave(t.Context(), at, "a"))
	}
	for i := range 3 {
		require.Positive(t, cluster.Node(i).Exec("DBSIZE"), "node %d", i)
	}

	cluster.Node(2).Exec("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	policy, err := redisstore.New(client, "inflight").Policy(t.Context())
	require.NoError(t, err)
	require.Equal(t, "allkeys-lru", policy)
}
