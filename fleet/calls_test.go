//go:build unix

package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet"
)

// A fleet is there to call less often than it admits.
func TestCallsPerAdmission(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	full, limits, names := byKey(ttl)
	half := full
	half.Loads = []load{
		{Key: large, Names: []string{large.String()}, Goroutines: 12, Hold: 20 * time.Millisecond, Pause: 2 * time.Millisecond},
		{Key: some, Names: []string{some.String()}, Goroutines: 1, Hold: 10 * time.Millisecond, Pause: 2 * time.Millisecond},
	}
	for name, tc := range map[string]struct {
		orders orders
		full   []string
		most   float64
	}{
		"unsaturated": {half, nil, 0.02},
		"saturated":   {full, names, 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.orders.Config = fleet.Config{TTL: ttl, CallTimeout: ttl / 4, Shards: 4}
			c := newCrowd(t, 6, tc.orders, limits, tc.full...)
			c.works()
			count := func() (calls, admitted int) {
				for i := range c.procs {
					admitted += c.admitted(i)
				}
				return c.server.CallsOf("evalsha", "eval"), admitted
			}
			calls, admitted := count()
			rest(t.Context(), ttl)
			callsAfter, admittedAfter := count()
			n, of := callsAfter-calls, admittedAfter-admitted
			t.Logf("%d calls for %d admissions: %.4f", n, of, float64(n)/float64(of))
			require.LessOrEqual(t, float64(n), tc.most*float64(of))
			c.ends()
			c.keepsLimits()
		})
	}
}
