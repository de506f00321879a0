//go:build unix

package fleet_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/fleettest"
	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

const (
	soon = 30 * time.Second // for what happens at once, on a slow machine
	tick = time.Millisecond
)

// A crowd is a fleet of real processes on a real server. The referee knows each limit by a name: that of the key, "org",
// "model" or "total" and what it is of.
type crowd struct {
	t       *testing.T
	server  *redistest.Server
	referee *fleettest.Referee
	procs   []*fleettest.Process
	orders  orders
	limits  map[string]int // by name
	full    []string       // those for which the load is more than enough
}

// newCrowd starts a server and so many processes, unless the orders are that each has loads of its own.
func newCrowd(t *testing.T, procs int, o orders, limits map[string]int, full ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, server: redistest.Start(t, redistest.Args("--appendonly", "yes")), orders: o, limits: limits, full: full}
	c.referee = fleettest.New(t, slices.Sorted(maps.Keys(limits)), procs)
	c.procs = make([]*fleettest.Process, procs)
	for i := range procs {
		if len(o.Loads) > 0 {
			c.spawn(i, o.Loads...)
		}
	}
	return c
}

// spawn starts a process that has these loads.
func (c *crowd) spawn(place int, loads ...load) {
	c.t.Helper()
	o := c.orders
	o.Addr, o.Loads = c.server.Addr(), loads
	text, err := json.Marshal(o)
	require.NoError(c.t, err)
	c.procs[place] = c.referee.Spawn(place, string(text))
}

// keepsLimits checks that no limit was ever exceeded.
func (c *crowd) keepsLimits() {
	c.t.Helper()
	for name, limit := range c.limits {
		require.LessOrEqual(c.t, c.referee.Peak(name), limit, "peak of %s", name)
	}
}

// works waits until each limit that should be full is in use to nine tenths, and each process gets slots.
func (c *crowd) works() {
	c.t.Helper()
	for _, name := range c.full {
		limit := c.limits[name]
		c.eventually(func() bool { return 10*c.referee.InUse(name) >= 9*limit }, "%s is never full", name)
	}
	for i := range c.procs {
		before := c.admitted(i)
		c.eventually(func() bool { return c.admitted(i) > before }, "process %d gets nothing", i)
	}
}

// admitted is how often the processes of a place got a slot, of whatever key; one that counts at two limits twice.
func (c *crowd) admitted(place int) int {
	sum := 0
	for name := range c.limits {
		sum += c.referee.Admitted(name, place)
	}
	return sum
}

// ends has all processes return, and checks that nothing is left in use.
func (c *crowd) ends() {
	c.t.Helper()
	for _, p := range c.procs {
		require.NoError(c.t, p.End())
	}
	for name := range c.limits {
		require.Zero(c.t, c.referee.InUse(name), name)
	}
}

// leavesAll checks that one process can have all that the others had.
func (c *crowd) leavesAll(k inflight.Key) {
	c.t.Helper()
	limits := func(k inflight.Key) inflight.Limits { return c.orders.Limits[k.String()] }
	reg, err := inflight.New(inflight.Config{Limits: limits, Logger: silent()})
	require.NoError(c.t, err)
	f, err := fleet.New(c.t.Context(), c.server.Client(), reg, c.orders.Config)
	require.NoError(c.t, err)
	limit := limits(k).Key
	slot, err := f.Acquire(c.t.Context(), k, inflight.Weight(limit), inflight.MaxWait(soon))
	require.NoError(c.t, err)
	_, err = f.Acquire(c.t.Context(), k, inflight.MaxWait(0))
	require.ErrorIs(c.t, err, inflight.ErrLimit)
	slot.Release()
	require.NoError(c.t, f.Close(c.t.Context()))
}

func (c *crowd) eventually(done func() bool, what string, args ...any) {
	c.t.Helper()
	deadline := time.Now().Add(soon)
	for !done() {
		if time.Now().After(deadline) {
			require.FailNow(c.t, "it did not happen", append([]any{what}, args...)...)
		}
		time.Sleep(tick)
	}
}
