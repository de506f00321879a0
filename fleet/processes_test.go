//go:build unix

package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

var (
	large = inflight.Key{Org: "acme", Model: "large"}
	some  = inflight.Key{Org: "acme", Model: "some"}
	few   = inflight.Key{Org: "zebra", Model: "few"}
)

// byKey are limits of three keys, and more load on each than it allows.
func byKey(ttl time.Duration) (o orders, limits map[string]int, full []string) {
	o = orders{
		Config: fleet.Config{TTL: ttl, CallTimeout: ttl / 4},
		Limits: map[string]inflight.Limits{large.String(): {Key: 200}, some.String(): {Key: 24}, few.String(): {Key: 3}},
		Loads: []load{
			{Key: large, Names: []string{large.String()}, Goroutines: 40, Hold: 200 * time.Millisecond, Pause: 30 * time.Millisecond},
			{Key: large, Names: []string{large.String()}, Goroutines: 10, Hold: 100 * time.Millisecond, Pause: tick, Wait: true},
			{Key: some, Names: []string{some.String()}, Goroutines: 8, Hold: 40 * time.Millisecond, Pause: 20 * time.Millisecond},
			{Key: some, Names: []string{some.String()}, Goroutines: 2, Hold: 5 * time.Millisecond, Pause: tick, Wait: true},
			{Key: few, Names: []string{few.String()}, Goroutines: 2, Hold: 20 * time.Millisecond, Pause: 10 * time.Millisecond, Wait: true},
		},
	}
	limits = map[string]int{large.String(): 200, some.String(): 24, few.String(): 3}
	return o, limits, []string{large.String(), some.String(), few.String()}
}

// byScope are limits of all scopes, most of which some slot lacks now and then, and slots that count at two keys.
func byScope(ttl time.Duration) (o orders, limits map[string]int, full []string) {
	glm, yi := inflight.Key{Org: "acme", Model: "glm"}, inflight.Key{Org: "acme", Model: "yi"}
	zebra := inflight.Key{Org: "zebra", Model: "glm"}
	each := inflight.Limits{Key: 16, Org: 24, Model: 20, Total: 30}
	o = orders{
		Config: fleet.Config{TTL: ttl, CallTimeout: ttl / 4},
		Limits: map[string]inflight.Limits{glm.String(): each, yi.String(): each, zebra.String(): each},
	}
	limits = map[string]int{
		glm.String(): 16, yi.String(): 16, zebra.String(): 16,
		"org acme": 24, "org zebra": 24, "model glm": 20, "model yi": 20, "total": 30,
	}
	for i, l := range []load{
		{Key: glm, Names: []string{glm.String(), "org acme", "model glm", "total"}},
		{Key: yi, Names: []string{yi.String(), "org acme", "model yi", "total"}},
		{Key: zebra, Names: []string{zebra.String(), "org zebra", "model glm", "total"}},
		{Key: yi, Also: []inflight.Key{zebra}, Names: []string{
			yi.String(), zebra.String(), "org acme", "org zebra", "model yi", "model glm", "total",
		}},
	} {
		l.Goroutines, l.Hold, l.Pause, l.Wait = 4, 60*time.Millisecond, 10*time.Millisecond, i%2 == 0
		o.Loads = append(o.Loads, l)
	}
	return o, limits, []string{"total"}
}

// The faults after which a fleet must go on as before, and in which it must keep its limits.
func faults(ttl time.Duration) []struct {
	name   string
	happen func(*crowd)
} {
	pause := func(c *crowd, d time.Duration) { rest(c.t.Context(), d) }
	return []struct {
		name   string
		happen func(*crowd)
	}{
		{"none", func(*crowd) {}},
		{"the server forgets the scripts", func(c *crowd) { c.server.ScriptFlush() }},
		{"the server forgets all", func(c *crowd) { c.server.Flush() }},
		{"two processes are killed", func(c *crowd) {
			c.procs[0].Kill()
			c.procs[1].Kill()
			c.spawn(0, c.orders.Loads...)
			c.spawn(1, c.orders.Loads...)
		}},
		{"the server halts", func(c *crowd) {
			c.server.Stop()
			pause(c, ttl/3)
			c.server.Continue()
		}},
		{"the server is restarted", func(c *crowd) { c.server.Restart() }},
		{"the server is restarted with nothing", func(c *crowd) { c.server.RestartEmpty() }},
		{"a process halts", func(c *crowd) {
			c.procs[2].Stop()
			pause(c, ttl/3)
			c.procs[2].Continue()
		}},
	}
}

func TestProcessesKeepLimits(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	for name, kind := range map[string]func(time.Duration) (orders, map[string]int, []string){
		"of keys": byKey, "of all scopes": byScope,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, limits, full := kind(ttl)
			c := newCrowd(t, 6, o, limits, full...)
			for _, fault := range faults(ttl) {
				begun := time.Now()
				fault.happen(c)
				c.works()
				c.keepsLimits()
				t.Logf("%s: %v", fault.name, time.Since(begun).Round(time.Millisecond))
			}
			c.ends()
			c.keepsLimits()
			for _, l := range o.Loads {
				c.leavesAll(l.Key)
			}
			require.Positive(t, c.referee.Buried(0)+c.referee.Buried(1), "nobody died while it held something")
		})
	}
}
