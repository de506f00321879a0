package fleet_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/modelstore"
)

const (
	ttl     = 30 * time.Second // the default
	syncing = ttl / 3
	denial  = time.Second // longer than any denial is remembered
	answer  = 10 * time.Millisecond
)

// A bubble is an engine in a bubble of fake time, and the limits that all members of the fleet have.
type bubble struct {
	*modelstore.Store

	t   *testing.T
	cfg fleet.Config

	delay atomic.Int64 // in nanoseconds, of what is sent, each way

	mu     sync.Mutex
	limits inflight.Limits
}

// A process is one of the fleet.
type process struct {
	*fleet.Fleet

	w *bubble
}

// inBubble runs f in a bubble. The engine is a millisecond away, and knows that nobody has anything.
func inBubble(t *testing.T, limits inflight.Limits, f func(w *bubble)) {
	t.Helper()
	inBubbleOf(t, limits, fleet.Config{}, f)
}

func inBubbleOf(t *testing.T, limits inflight.Limits, cfg fleet.Config, f func(w *bubble)) {
	t.Helper()
	cfg.Logger = silent()
	synctest.Test(t, func(t *testing.T) {
		w := &bubble{t: t, cfg: cfg, limits: limits}
		w.delay.Store(int64(time.Millisecond))
		w.Store = modelstore.New(modelstore.Options{Latency: func() time.Duration { return time.Duration(w.delay.Load()) }})
		first := w.join()
		time.Sleep(ttl + syncing)
		first.leave()
		f(w)
	})
}

func (w *bubble) limitsOf(inflight.Key) inflight.Limits {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limits
}

// change changes the limits everywhere.
func (w *bubble) change(limits inflight.Limits, members ...*process) {
	w.mu.Lock()
	w.limits = limits
	w.mu.Unlock()
	for _, m := range members {
		m.Registry().LimitsChanged()
	}
}

// join makes a process. It leaves at the end, if it has not left before.
func (w *bubble) join() *process {
	w.t.Helper()
	return w.joinAs(inflight.Config{})
}

func (w *bubble) joinAs(local inflight.Config) *process {
	w.t.Helper()
	local.Limits, local.SweepInterval, local.Logger = w.limitsOf, -1, silent()
	reg, err := inflight.New(local)
	require.NoError(w.t, err)
	f, err := fleet.NewOn(w.t.Context(), w, reg, w.cfg)
	require.NoError(w.t, err)
	m := &process{f, w}
	w.t.Cleanup(m.abandon)
	return m
}

// leave leaves the fleet, in which the member holds nothing any more.
func (m *process) leave() {
	m.w.t.Helper()
	m.empty()
	require.NoError(m.w.t, m.Close(context.Background()))
}

// abandon ends a member, whatever it holds.
func (m *process) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Close(ended)
}

// take takes a slot, for which there must be room.
func (m *process) take(k inflight.Key, opts ...inflight.Option) *inflight.Slot {
	m.w.t.Helper()
	s, err := m.Acquire(m.w.t.Context(), k, append(opts, inflight.MaxWait(0))...)
	require.NoError(m.w.t, err)
	return s
}

func (m *process) takeAll(k inflight.Key, n int) []*inflight.Slot {
	m.w.t.Helper()
	var slots []*inflight.Slot
	for range n {
		slots = append(slots, m.take(k))
	}
	return slots
}

// refuses checks that there is no room.
func (m *process) refuses(k inflight.Key, opts ...inflight.Option) {
	m.w.t.Helper()
	_, err := m.Acquire(m.w.t.Context(), k, append(opts, inflight.MaxWait(0))...)
	require.ErrorIs(m.w.t, err, inflight.ErrLimit)
}

// empty checks that nobody holds or waits.
func (m *process) empty() {
	m.w.t.Helper()
	synctest.Wait()
	s := m.Registry().Stats()
	require.Zero(m.w.t, s.InUse, "in use")
	require.Zero(m.w.t, s.Waiters, "waiters")
	require.Empty(m.w.t, m.Registry().Keys(0))
}

func releaseAll(slots []*inflight.Slot) {
	for _, s := range slots {
		s.Release()
	}
}

// A pending is an Acquire on a goroutine of its own.
type pending struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan struct{} // closed when slot and err are set
	at     time.Time     // of that
	slot   *inflight.Slot
	err    error
}

// queue starts an Acquire.
func (m *process) queue(k inflight.Key, opts ...inflight.Option) *pending {
	ctx, cancel := context.WithCancel(m.w.t.Context())
	m.w.t.Cleanup(cancel) // lets a failed test end
	p := &pending{t: m.w.t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		p.slot, p.err = m.Acquire(ctx, k, opts...)
		p.at = time.Now()
		close(p.ended)
	}()
	synctest.Wait() // so the next one is behind it
	return p
}

func (p *pending) waits() bool {
	synctest.Wait()
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// granted is the slot that it must get before so much time has passed.
func (p *pending) granted(within time.Duration) *inflight.Slot {
	p.t.Helper()
	begun := time.Now()
	select {
	case <-p.ended:
	case <-time.After(within):
		require.FailNow(p.t, "still waits", "after %v", within)
	}
	require.NoError(p.t, p.err)
	require.LessOrEqual(p.t, p.at.Sub(begun), within)
	return p.slot
}
