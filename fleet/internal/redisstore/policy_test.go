package redisstore_test

import (
	"testing"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redisstore"
)

// tells makes a server answer what it is asked about its policy: "" is an answer without it, and "-" an error.
func tells(s *server, config, info string) {
	s.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		switch {
		case cmd == "CONFIG" && config == "-":
			c.WriteError("NOPERM this user has no permissions to run the 'config|get' command")
		case cmd == "CONFIG" && config == "":
			c.WriteLen(0)
		case cmd == "CONFIG":
			c.WriteStrings([]string{"maxmemory-policy", config})
		case cmd == "INFO" && info == "-":
			c.WriteError("NOPERM this user has no permissions to run the 'info' command")
		case cmd == "INFO" && info == "":
			c.WriteBulk("# Memory\r\nused_memory:1\r\n")
		case cmd == "INFO":
			c.WriteBulk("# Memory\r\nused_memory:1\r\nmaxmemory_policy:" + info + "\r\nallocator_frag:1\r\n")
		default:
			return false
		}
		return true
	})
}

func TestPolicy(t *testing.T) {
	for _, c := range []struct{ config, info, policy, failure string }{
		{"noeviction", "-", "noeviction", ""},
		{"allkeys-lru", "noeviction", "allkeys-lru", ""},
		{"-", "volatile-ttl", "volatile-ttl", ""},
		{"", "noeviction", "noeviction", ""},
		{"-", "-", "", "'config|get'"},
		{"", "-", "", "'info'"},
		{"-", "", "", "'config|get'"},
		{"", "", "", "does not tell"},
	} {
		t.Run(c.config+"/"+c.info, func(t *testing.T) {
			s := newServer(t)
			tells(s, c.config, c.info)
			policy, err := redisstore.New(s.client, "inflight").Policy(t.Context())
			require.Equal(t, c.policy, policy)
			if c.failure == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.failure)
			}
		})
	}
}

// Of several servers the one counts that would forget leases.
func TestPolicyOfSeveral(t *testing.T) {
	for _, policies := range [][2]string{{"noeviction", "allkeys-lru"}, {"allkeys-lru", "noeviction"}, {"noeviction", "noeviction"}} {
		a, b := newServer(t), newServer(t)
		tells(a, policies[0], "")
		tells(b, policies[1], "")
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}})
		want := policies[0]
		if want == "noeviction" {
			want = policies[1]
		}
		policy, err := redisstore.New(ring, "inflight").Policy(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, policy)

		tells(b, "-", "-")
		_, err = redisstore.New(ring, "inflight").Policy(t.Context())
		require.ErrorContains(t, err, "NOPERM")
		require.NoError(t, ring.Close())
	}

	none := redis.NewRing(&redis.RingOptions{})
	defer func() { require.NoError(t, none.Close()) }()
	_, err := redisstore.New(none, "inflight").Policy(t.Context())
	require.ErrorContains(t, err, "no server")
}

func TestPolicyOfCluster(t *testing.T) {
	s := newServer(t)
	tells(s, "volatile-lru", "")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer func() { require.NoError(t, client.Close()) }()
	policy, err := redisstore.New(client, "inflight").Policy(t.Context())
	require.NoError(t, err)
	require.Equal(t, "volatile-lru", policy)
}
