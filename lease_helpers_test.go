package inflight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

const term = 30 * time.Second // what the tests renew leases for

// leaseTest is a registry whose limits are leased, all in one shard, by a lender that the test plays.
type leaseTest struct {
	*queueTest

	leases *inflight.Leases
}

func inLeaseTest(t *testing.T, limits inflight.LimitFunc, f func(l *leaseTest)) {
	t.Helper()
	inLeaseTestOf(t, inflight.Config{Limits: limits}, f)
}

// inLeaseTestOf begins with leases that hold, of nothing.
func inLeaseTestOf(t *testing.T, cfg inflight.Config, f func(l *leaseTest)) {
	t.Helper()
	inQueueTestOf(t, cfg, func(q *queueTest) {
		leases, err := q.Lease(1, time.Hour)
		require.NoError(q.t, err)
		l := &leaseTest{q, leases}
		l.renew()
		f(l)
	})
}

func (l *leaseTest) renew() {
	l.leases.Renew(0, inflight.Terms{Until: time.Now().Add(term)})
}

// asks are what is asked for now.
func (l *leaseTest) asks() []inflight.Lease {
	asks, _ := l.leases.Asks(0, 100)
	return asks
}

// ask is the one thing that is asked for.
func (l *leaseTest) ask() inflight.Lease {
	l.t.Helper()
	asks := l.asks()
	require.Len(l.t, asks, 1)
	return asks[0]
}

// answer grants n of what is asked for.
func (l *leaseTest) answer(ask inflight.Lease, granted int) {
	l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: granted, Keep: -1}})
}

// deny grants nothing on top of what there is, and has the registry remember that.
func (l *leaseTest) deny(ask inflight.Lease, d time.Duration) {
	l.leases.Answer([]inflight.Lease{ask}, []inflight.Grant{{Granted: ask.Have, Keep: -1, Tight: true, Denied: d}})
}

// grant has the registry lease n of the key's limit.
func (l *leaseTest) grant(k inflight.Key, n int) {
	l.t.Helper()
	l.refuses(k)
	l.answer(l.ask(), n)
}

func (l *leaseTest) granted(k inflight.Key) int {
	l.t.Helper()
	for _, info := range l.Keys(0) {
		if info.Key == k {
			require.True(l.t, info.Leased)
			return info.Granted
		}
	}
	require.Fail(l.t, "the key is not in use", "%v", k)
	return 0
}

// briefly starts an Acquire that is not to wait for room. It waits for the answer all the same.
func (l *leaseTest) briefly(k inflight.Key, opts ...inflight.Option) *queued {
	l.t.Helper()
	return l.queue(k, append(opts, inflight.MaxWait(0))...)
}
