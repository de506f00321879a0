//go:build unix

package redistest_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

func TestProxyPassesAllOn(t *testing.T) {
	for name, opts := range map[string][]redistest.Option{
		"in the clear": nil,
		"over TLS":     {redistest.TLS(t)},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, opts...)
			long := string(make([]byte, 1<<20))
			c := redistest.StartProxy(t, s).Client()
			require.NoError(t, c.Set(t.Context(), "k", long, 0).Err())
			require.Equal(t, long, c.Get(t.Context(), "k").Val())
		})
	}
}

func TestProxyDelaysEachWay(t *testing.T) {
	p := redistest.StartProxy(t, redistest.Start(t))
	c := p.Client()
	require.NoError(t, c.Ping(t.Context()).Err())
	p.Delay(50 * time.Millisecond)
	start := time.Now()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond) // of the promise, not of the machine

	p.Delay(time.Hour)
	p.Heal()
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestProxyCuts(t *testing.T) {
	p := redistest.StartProxy(t, redistest.Start(t))
	c := p.Client(brief)
	require.NoError(t, c.Ping(t.Context()).Err())

	p.Cut()
	p.Cut() // once more changes nothing
	require.Error(t, c.Ping(t.Context()).Err())
	require.ErrorContains(t, c.Ping(t.Context()).Err(), "connection refused")

	p.Heal()
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestProxyKeepsWhatIsSentIntoABlackHole(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s)
	c := p.Client(brief)
	require.NoError(t, c.Ping(t.Context()).Err())

	p.Blackhole()
	require.True(t, os.IsTimeout(c.Incr(moment(t), "k").Err()), "on the connection there is")
	require.True(t, os.IsTimeout(c.Incr(moment(t), "k").Err()), "on a new one")
	require.Nil(t, s.Exec("GET", "k"))

	p.Heal() // late, but it comes: the second not even said hello
	require.Eventually(t, func() bool { return c.Get(t.Context(), "k").Val() == "1" }, 15*time.Second, time.Millisecond)
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestBlackHoleHidesThatTheServerIsGone(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s)
	c := p.Client(brief)
	require.NoError(t, c.Ping(t.Context()).Err())
	p.Blackhole()
	s.Kill()
	require.True(t, os.IsTimeout(c.Ping(moment(t)).Err()), "on the connection there is")
	require.True(t, os.IsTimeout(c.Ping(moment(t)).Err()), "on a new one")
}

func TestProxyCutEmptiesABlackHole(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s)
	c := p.Client(brief)
	require.NoError(t, c.Ping(t.Context()).Err())
	p.Blackhole()
	require.True(t, os.IsTimeout(c.Incr(moment(t), "k").Err()))
	p.Cut()
	p.Blackhole()
	require.True(t, os.IsTimeout(c.Ping(moment(t)).Err()), "it is accepted again, and never answered")
	p.Heal()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.Nil(t, s.Exec("GET", "k"))
}

func TestProxyOutlivesItsServer(t *testing.T) {
	s := redistest.Start(t)
	c := redistest.StartProxy(t, s).Client(brief)
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Kill()
	require.Error(t, c.Ping(t.Context()).Err())
	s.Restart()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, 15*time.Second, time.Millisecond)
}
