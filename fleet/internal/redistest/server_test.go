//go:build unix

package redistest_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

// brief is a client that gives up soon, and says so at the first try.
func brief(o *redis.Options) {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
}

func moment(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestServersAreEachOnTheirOwn(t *testing.T) {
	one, other := redistest.Start(t), redistest.Start(t)
	require.NotEqual(t, one.Addr(), other.Addr())
	require.NoError(t, one.Client().Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", one.Exec("GET", "k"))
	require.Nil(t, other.Exec("GET", "k"))
}

func TestServerEndsWithItsTest(t *testing.T) {
	var addr string
	t.Run("its test", func(t *testing.T) { addr = redistest.Start(t).Addr() })
	require.NotEmpty(t, addr)
	_, err := net.Dial("tcp", addr)
	require.Error(t, err)
}

func TestStoppedServerAnswersLater(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(brief)
	require.NoError(t, c.Ping(t.Context()).Err())

	s.Stop()
	require.True(t, os.IsTimeout(c.Incr(moment(t), "k").Err()))
	s.Continue()

	require.Eventually(t, func() bool { return c.Get(t.Context(), "k").Val() == "1" }, 15*time.Second, time.Millisecond)
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestKilledServer(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(brief)
	s.Kill()
	require.ErrorContains(t, c.Ping(t.Context()).Err(), "connection refused")
	s.Kill() // once more changes nothing
}

func TestRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		before  func(*redistest.Server)
		restart func(*redistest.Server)
		want    any
	}{
		"without persistence": {restart: (*redistest.Server).Restart},
		"with a log":          {args: []string{"--appendonly", "yes"}, restart: (*redistest.Server).Restart, want: "new"},
		"with a log, empty":   {args: []string{"--appendonly", "yes"}, restart: (*redistest.Server).RestartEmpty},
		"from an old snapshot": {
			before:  func(s *redistest.Server) { s.Exec("SET", "k", "old"); s.Exec("SAVE") },
			restart: (*redistest.Server).Restart,
			want:    "old",
		},
		"with a snapshot, empty": {
			before:  func(s *redistest.Server) { s.Exec("SET", "k", "old"); s.Exec("SAVE") },
			restart: (*redistest.Server).RestartEmpty,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, redistest.Args(tc.args...))
			addr := s.Addr()
			if tc.before != nil {
				tc.before(s)
			}
			s.Exec("SET", "k", "new")
			tc.restart(s)
			require.Equal(t, addr, s.Addr())
			require.Equal(t, tc.want, s.Exec("GET", "k"))
		})
	}
}

func TestFlush(t *testing.T) {
	s := redistest.Start(t)
	s.Exec("SET", "k", "v")
	s.Flush()
	require.Nil(t, s.Exec("GET", "k"))
}

func TestScriptsAreForgottenAndCounted(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client()
	script := redis.NewScript("return redis.call('INCR', KEYS[1])")
	run := func() {
		t.Helper()
		require.NoError(t, script.Run(t.Context(), c, []string{"k"}).Err())
	}
	require.Zero(t, s.CallsOf("evalsha", "eval"))
	run() // EVALSHA in vain, and EVAL
	run()
	require.Equal(t, 2, s.CallsOf("evalsha"))
	require.Equal(t, 1, s.CallsOf("eval"))
	s.ScriptFlush()
	run()
	require.Equal(t, 3, s.CallsOf("evalsha"))
	require.Equal(t, 2, s.CallsOf("eval"))
	require.Equal(t, 5, s.CallsOf("evalsha", "eval"))
}

func TestPasswordAndRights(t *testing.T) {
	s := redistest.Start(t, redistest.Args("--requirepass", "secret"),
		redistest.Args("--user", "app", "on", ">secret", "~app:*", "+@all", "-config"))
	s.Exec("SET", "k", "v")
	require.ErrorContains(t, s.Client().Get(t.Context(), "k").Err(), "NOAUTH")
	require.NoError(t, s.Client(func(o *redis.Options) { o.Password = "secret" }).Get(t.Context(), "k").Err())

	app := s.Client(func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	require.NoError(t, app.Set(t.Context(), "app:k", "v", 0).Err())
	require.ErrorContains(t, app.Get(t.Context(), "k").Err(), "NOPERM")
	require.ErrorContains(t, app.ConfigGet(t.Context(), "maxmemory").Err(), "NOPERM")
}

func TestMemoryMayEnd(t *testing.T) {
	s := redistest.Start(t, redistest.Args("--maxmemory", "1"))
	require.ErrorContains(t, s.Client().Set(t.Context(), "k", "v", 0).Err(), "OOM")
}

func TestTLS(t *testing.T) {
	s := redistest.Start(t, redistest.TLS(t))
	require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", s.Exec("GET", "k"))

	inTheClear := s.Client(brief, func(o *redis.Options) { o.TLSConfig = nil })
	require.Error(t, inTheClear.Ping(t.Context()).Err())
	distrusting := s.Client(brief, func(o *redis.Options) { o.TLSConfig.RootCAs = nil })
	require.ErrorContains(t, distrusting.Ping(t.Context()).Err(), "certificate")
}

func TestReplica(t *testing.T) {
	for name, shared := range map[string][]redistest.Option{
		"in the clear":    nil,
		"with a password": {redistest.Args("--requirepass", "secret")},
		"over TLS":        {redistest.TLS(t)},
	} {
		t.Run(name, func(t *testing.T) {
			master := redistest.Start(t, shared...)
			master.Exec("SET", "k", "v")
			replica := redistest.Start(t, append(shared, redistest.ReplicaOf(master))...)
			require.Equal(t, "v", replica.Exec("GET", "k"))

			c := replica.Client(func(o *redis.Options) {
				if name == "with a password" {
					o.Password = "secret"
				}
			})
			require.ErrorContains(t, c.Set(t.Context(), "k", "w", 0).Err(), "READONLY")
			master.Kill()
			replica.Exec("REPLICAOF", "NO", "ONE")
			require.NoError(t, c.Set(t.Context(), "k", "w", 0).Err())
		})
	}
}
