//go:build unix

package fleet_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

// leastRights are all that a user needs, here with the prefix that is the default. The warning of a wrong maxmemory-policy
// needs +config|get or +info too.
func leastRights() []string {
	return []string{
		"resetkeys", "~{inflight:*", "resetchannels", "-@all", "+evalsha", "+eval", "+time", "+get", "+set", "+pexpire",
		"+zadd", "+zcard", "+zcount", "+zrange", "+zrem", "+zremrangebyscore", "+zscore", "+hdel", "+hgetall", "+hmget",
		"+hset",
	}
}

func user(name, password string) func(*redis.Options) {
	return func(o *redis.Options) {
		quick(o)
		o.Username, o.Password = name, password
	}
}

// New fails if the server does not want the process, as waiting would not help. The registry is as it was then.
func TestNewIsRefused(t *testing.T) {
	t.Parallel()
	rights := append([]string{"--user", "app", "on", ">" + appPassword}, leastRights()...)
	server := redistest.Start(t, redistest.Args("--requirepass", "secret"), redistest.Args(rights...),
		redistest.Args("--user", "reader", "on", ">"+appPassword, "~*", "-@all", "+get"),
		redistest.Args("--user", "elsewhere", "on", ">"+appPassword, "~other:*", "+@all"))
	for name, tc := range map[string]struct {
		client func(*redis.Options)
		want   string
	}{
		"no password":    {recommended, "unauthenticated"},
		"wrong password": {user("app", "wrong"), "WRONGPASS"},
		"no such user":   {user("nobody", appPassword), "WRONGPASS"},
		"no right":       {user("reader", appPassword), "NOPERM"},
		"no keys":        {user("elsewhere", appPassword), "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t, inflight.Limits{Key: 10})
			_, err := fleet.New(t.Context(), server.Client(tc.client), reg, settings(fleet.Config{}))
			require.ErrorContains(t, err, "inflight: fleet.New: refused by the engine: ")
			require.ErrorContains(t, err, tc.want)
			requireAlone(t, reg)

			f, err := fleet.New(t.Context(), server.Client(user("app", appPassword)), reg, settings(fleet.Config{}))
			require.NoError(t, err)
			a := &peer{f, t}
			a.get(acme, 1).Release()
			require.Zero(t, a.Stats().Failed)
			require.NoError(t, a.Close(t.Context()))
		})
	}
}

// recommended sets what New recommends.
func recommended(o *redis.Options) { quick(o) }

// A process that starts without a server waits for it, and admits what it is told is its share.
func TestNewWithoutAServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg    fleet.Config
		admits int
	}{
		"of an unknown fleet": {fleet.Config{}, 0},
		"of three":            {fleet.Config{Processes: 3}, 3},
		"open":                {fleet.Config{Fallback: fleet.Open}, 10},
		"closed":              {fleet.Config{Fallback: fleet.Closed, Processes: 3}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(recommended)
			server.Kill()
			a := peerOf(t, client, 10, tc.cfg)
			require.Equal(t, shards, a.Stats().Fallback)
			held := a.fill(acme)
			require.Len(t, held, tc.admits)
			server.Restart()
			a.recovered()
			a.goOn(acme, held)
			a.get(acme, 10).Release()
		})
	}
}
