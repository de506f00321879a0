package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redisstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

const (
	keyP = "{inflight:3}P"
	keyE = "{inflight:3}E"
	keyH = "{inflight:3}H:x"
)

// Whatever is written vanishes when nobody calls any more, and what means that memory is lost is not the last to go.
func TestKeysExpire(t *testing.T) {
	e := newEngine(t)
	e.call("a")
	require.Equal(t, store.Idle, e.server.TTL(keyE))
	e.learned("a")
	e.ask("a", store.Entry{Name: "x", Limit: 1, Have: 1})
	require.ElementsMatch(t, []string{keyP, keyE, keyH}, e.server.Keys())
	require.Equal(t, store.Memory*ttl, e.server.TTL(keyH))
	require.Equal(t, store.Idle, e.server.TTL(keyE), "it is renewed, for the first call was a while ago")
	require.Equal(t, 2*store.Idle, e.server.TTL(keyP))

	e.leave("a")
	require.False(t, e.server.Exists(keyP))
	e.step(store.Idle)
	require.Empty(t, e.server.Keys())
}

// Fields that no longer count do not pile up in a hash that is in use.
func TestFieldsAreDropped(t *testing.T) {
	e := newEngine(t)
	e.learned("a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		e.ask(id, store.Entry{Name: "x", Limit: 9, Have: 1})
	}
	e.leave("b")
	e.ask("a", store.Entry{Name: "x", Limit: 9, Have: 1})
	fields, err := e.server.HKeys(keyH)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "b", "c"}, fields, "nobody has looked")
	e.ask("a", store.Entry{Name: "x", Limit: 9, Have: 9, Need: 1})
	fields, err = e.server.HKeys(keyH)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "c", "!"}, fields)
}

func TestPrefixKeepsFleetsApart(t *testing.T) {
	e := newEngine(t)
	e.call("a")
	e.Store = redisstore.New(e.server.client, "other")
	require.Equal(t, 1, e.call("b").Live)
	require.ElementsMatch(t, []string{keyP, keyE, "{other:3}P", "{other:3}E"}, e.server.Keys())
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	e := newEngine(t)
	for range 2 {
		e.call("a")
		e.leave("a")
		require.NoError(t, e.server.client.ScriptFlush(t.Context()).Err())
	}
}

func TestClusterClient(t *testing.T) {
	e := newEngine(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{e.server.Addr()}})
	defer func() { require.NoError(t, client.Close()) }()
	e.Store = redisstore.New(client, "inflight")
	e.learned("a")
	require.Equal(t, 2, e.ask("a", store.Entry{Name: "x", Limit: 2, Need: 2}).Granted)
}

// failOn makes the server refuse a command, also in scripts.
func failOn(e *engine, command string) {
	e.server.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		if cmd != command {
			return false
		}
		c.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
		return true
	})
}

// A script that fails between two writes leaves nothing that the next one could misunderstand.
func TestScriptFails(t *testing.T) {
	t.Run("before the lease of a new epoch", func(t *testing.T) {
		e := newEngine(t)
		e.learned("a")
		old := e.call("a").Epoch
		e.step(ttl)
		failOn(e, "ZADD")
		_, err := e.Lease(t.Context(), shard, store.Call{ID: "b", TTL: ttl})
		require.ErrorContains(t, err, "OOM")
		e.server.Server().SetPreHook(nil)
		reply := e.call("b")
		require.Greater(t, reply.Epoch, old)
		require.Equal(t, ttl, reply.Learning)
	})
	t.Run("before a grant", func(t *testing.T) {
		e := newEngine(t)
		e.learned("a", "b")
		failOn(e, "HSET")
		_, err := e.Lease(t.Context(), shard, store.Call{ID: "a", TTL: ttl, Entries: []store.Entry{{Name: "x", Limit: 2, Need: 2}}})
		require.ErrorContains(t, err, "OOM")
		e.server.Server().SetPreHook(nil)
		require.Equal(t, 2, e.ask("b", store.Entry{Name: "x", Limit: 2, Need: 2}).Granted)
	})
	t.Run("after a grant", func(t *testing.T) {
		e := newEngine(t)
		e.learned("a", "b")
		require.NoError(t, e.server.Set("{inflight:3}H:y", "no hash"))
		_, err := e.Lease(t.Context(), shard, store.Call{ID: "a", TTL: ttl, Entries: []store.Entry{
			{Name: "x", Limit: 2, Need: 2}, {Name: "y", Limit: 2, Need: 2},
		}})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Equal(t, store.Answer{Others: 2, Short: true, Keep: -1}, e.ask("b", store.Entry{Name: "x", Limit: 2, Need: 2}))
	})
}

func TestServerIsGone(t *testing.T) {
	e := newEngine(t)
	e.server.Close()
	_, err := e.Lease(t.Context(), shard, store.Call{ID: "a", TTL: ttl})
	require.Error(t, err)
	require.Error(t, e.Leave(t.Context(), shard, "a"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Lease(ctx, shard, store.Call{ID: "a", TTL: ttl})
	require.ErrorIs(t, err, context.Canceled)
}

// What is on the other end need not be the scripts.
func TestStrangeReplies(t *testing.T) {
	for name, numbers := range map[string][]int{
		"none":            {},
		"a short head":    {1, 1, 0, 9, 1},
		"no answer":       {1, 1, 0, 9, 1, 0},
		"half an answer":  {1, 1, 0, 9, 1, 0, 5, 5},
		"too many":        {1, 1, 0, 9, 1, 0, 5, 0, 0, -1, 5, 0, 0, -1},
		"one to an alien": {1, 0, 0, 9, 1, 0, 5, 0, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
				if cmd != "EVALSHA" {
					return false
				}
				c.WriteLen(len(numbers))
				for _, n := range numbers {
					c.WriteInt(n)
				}
				return true
			})
			_, err := redisstore.New(s.client, "inflight").Lease(t.Context(), shard,
				store.Call{ID: "a", TTL: time.Second, Entries: []store.Entry{{Name: "x"}}})
			require.ErrorContains(t, err, "a reply of")
			require.NoError(t, errors.Unwrap(err))
		})
	}
}
