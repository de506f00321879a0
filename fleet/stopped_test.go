//go:build unix

package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// A process that was halted for longer than its leases hold finds that others have got what it had. What it holds it goes on
// to hold, so the limit is exceeded by that, and by no more: it gets nothing new, and the others less, until that is over.
func TestProcessHaltedForLong(t *testing.T) {
	t.Parallel()
	const (
		ttl   = time.Second
		limit = 24
		held  = 10
		tries = 2
	)
	name := some.String()
	holder := load{Key: some, Names: []string{name}, Goroutines: held, Pause: tick, Wait: true}
	trier := load{Key: some, Names: []string{name}, Goroutines: tries, Hold: 10 * time.Millisecond, Pause: 10 * time.Millisecond}
	other := load{Key: some, Names: []string{name}, Goroutines: limit, Hold: 20 * time.Millisecond, Pause: tick, Wait: true}
	c := newCrowd(t, 4, orders{
		Config: fleet.Config{TTL: ttl},
		Limits: map[string]inflight.Limits{name: {Key: limit}},
	}, map[string]int{name: limit})
	c.spawn(0, holder, trier)
	c.eventually(func() bool { return c.admitted(0) > held }, "the holder does not hold")
	for i := 1; i < len(c.procs); i++ {
		c.spawn(i, other)
	}
	c.eventually(func() bool { return c.referee.InUse(name) == limit }, "it is never full")
	c.keepsLimits()

	c.procs[0].Stop()
	got := c.admitted(0)
	c.eventually(func() bool { return c.referee.InUse(name) >= limit+held }, "the others never get what it had")
	require.LessOrEqual(t, c.referee.Peak(name), limit+held+tries)
	c.procs[0].Continue()
	meanwhile := got // admitted there before a time when there still was too much
	c.eventually(func() bool {
		c.referee.ResetPeaks() // once all processes know of it, there is never more
		before, there := c.admitted(1), c.admitted(0)
		c.eventually(func() bool { return c.admitted(1) > before+100 }, "the others get nothing")
		if c.referee.Peak(name) <= limit {
			return true
		}
		meanwhile = there
		return false
	}, "the excess is never over")
	require.LessOrEqual(t, meanwhile, got+tries, "it was granted something")
	c.ends()
}
