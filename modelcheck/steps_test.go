package modelcheck_test

import (
	"context"
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inflight-go/inflight"
)

var errCanceled = errors.New("cancelled by hand")

// steps are what may happen, each to both sides. A step that cannot be taken now does nothing.
func (m *machine) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":                 func(*rapid.T) { m.check() },
		"try":              m.stepTry,
		"acquire":          m.stepAcquire,
		"acquire again":    m.stepAcquire, // steps are taken with equal chance, and these matter most
		"acquire too late": m.stepAcquireEnded,
		"cancel":           m.stepCancel,
		"release":          m.stepRelease,
		"release oldest":   m.stepReleaseOldest,
		"release at once":  m.stepReleaseAtOnce,
		"evict":            m.stepEvict,
		"cancel slot":      m.stepCancelSlot,
		"limit":            m.stepLimit,
		"limits of a key":  m.stepLimitsOfKey,
		"limits changed":   m.stepLimitsChanged,
		"sweep":            m.stepSweep,
		"time":             m.stepTime,
	}
}

// drawAsk draws what to ask for, as an ask of the model's and as options.
func drawAsk(t *rapid.T, name string) (ask, []inflight.Option) {
	n := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "keys")
	a := ask{name: name, weight: rapid.SampledFrom([]int{1, 1, 2, 0, 3}).Draw(t, "weight")}
	var named []inflight.Key
	for range n {
		k := rapid.SampledFrom(keys).Draw(t, "key")
		named = append(named, k)
		known := false
		for _, other := range a.keys {
			known = known || other == k
		}
		if !known {
			a.keys = append(a.keys, k)
		}
	}
	return a, []inflight.Option{inflight.Also(named[1:]...), inflight.Weight(a.weight), inflight.Label(name)}
}

func (m *machine) stepTry(t *rapid.T) {
	o := m.newOp()
	a, opts := drawAsk(t, o.name)
	m.start(context.Background(), o, func(context.Context) (*inflight.Slot, error) {
		return m.reg.TryAcquire(a.keys[0], opts...)
	})
	m.model.tryAcquire(a, time.Now())
}

func (m *machine) stepAcquire(t *rapid.T) {
	o := m.newOp()
	a, opts := drawAsk(t, o.name)
	// Time goes on in whole seconds and no two deadlines are the same, so their order is known.
	wait := rapid.IntRange(1, 5).Draw(t, "wait")
	patience := time.Duration(wait)*time.Second + time.Duration(len(m.ops))*time.Microsecond
	deadline := time.Now().Add(patience)
	ctx := context.Background()
	var end error
	switch rapid.SampledFrom([]string{"none", "MaxWait", "context", "no wait"}).Draw(t, "bound") {
	case "none":
		deadline = time.Time{}
	case "MaxWait":
		opts = append(opts, inflight.MaxWait(patience))
	case "context":
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		end = context.DeadlineExceeded
		o.onStop = cancel
	case "no wait":
		deadline = time.Now()
		opts = append(opts, inflight.MaxWait(-time.Duration(wait-1)))
	}
	m.start(ctx, o, func(ctx context.Context) (*inflight.Slot, error) {
		return m.reg.Acquire(ctx, a.keys[0], opts...)
	})
	m.model.acquire(a, time.Now(), deadline, end)
}

func (m *machine) stepAcquireEnded(t *rapid.T) {
	o := m.newOp()
	a, opts := drawAsk(t, o.name)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.start(ctx, o, func(ctx context.Context) (*inflight.Slot, error) {
		return m.reg.Acquire(ctx, a.keys[0], opts...)
	})
	m.model.acquireEnded(o.name)
}

// stepCancel ends the context of an acquire, most often one that waits.
func (m *machine) stepCancel(t *rapid.T) {
	var waiting []*op
	for _, o := range m.ops {
		if !o.done() {
			waiting = append(waiting, o)
		}
	}
	if len(waiting) == 0 {
		return
	}
	o := rapid.SampledFrom(waiting).Draw(t, "op")
	o.cancel()
	m.model.cancel(o.name, time.Now())
}

// granted are the acquires that got a slot, whether it is still held or not.
func (m *machine) granted() []*op {
	var granted []*op
	for _, o := range m.ops {
		if o.done() && o.slot != nil {
			granted = append(granted, o)
		}
	}
	return granted
}

func (m *machine) drawGranted(t *rapid.T) *op {
	granted := m.granted()
	if len(granted) == 0 {
		return nil
	}
	// Of the younger ones more are live.
	return granted[len(granted)-1-rapid.IntRange(0, len(granted)-1).Draw(t, "slot")]
}

// stepRelease releases a slot, for the first time or not.
func (m *machine) stepRelease(t *rapid.T) {
	if o := m.drawGranted(t); o != nil {
		o.slot.Release()
		m.model.release(o.name, time.Now())
	}
}

func (m *machine) stepReleaseOldest(*rapid.T) {
	if len(m.model.holders) == 0 {
		return
	}
	name := m.model.holders[0].name
	for _, o := range m.granted() {
		if o.name == name {
			o.slot.Release()
		}
	}
	m.model.release(name, time.Now())
}

// stepReleaseAtOnce releases one slot on many goroutines.
func (m *machine) stepReleaseAtOnce(t *rapid.T) {
	if o := m.drawGranted(t); o != nil {
		var all sync.WaitGroup
		for range 8 {
			all.Go(o.slot.Release)
		}
		all.Wait()
		m.model.release(o.name, time.Now())
	}
}

func (m *machine) stepEvict(t *rapid.T) {
	require.False(t, m.reg.Evict(0))
	require.False(t, m.reg.Evict(m.reg.Stats().Admitted+1))
	if o := m.drawGranted(t); o != nil {
		evicted := m.reg.Evict(o.slot.ID())
		require.Equal(t, m.model.evict(o.name, time.Now()), evicted)
	}
}

func (m *machine) stepCancelSlot(t *rapid.T) {
	require.False(t, m.reg.Cancel(0, nil))
	o := m.drawGranted(t)
	if o == nil {
		return
	}
	cause := rapid.SampledFrom([]error{nil, errCanceled}).Draw(t, "cause")
	canceled := m.reg.Cancel(o.slot.ID(), cause)
	if cause == nil {
		cause = context.Canceled
	}
	require.Equal(t, m.model.cancelSlot(o.name, cause), canceled)
}

// stepLimit sets one limit, for all that it bears on.
func (m *machine) stepLimit(t *rapid.T) {
	k := rapid.SampledFrom(keys).Draw(t, "key")
	switch rapid.SampledFrom([]inflight.Scope{0, 1, 2, 3}).Draw(t, "scope") {
	case inflight.ScopeKey:
		n := rapid.SampledFrom(keyValues).Draw(t, "limit")
		m.setWhere(func(other inflight.Key) bool { return other == k }, func(l *inflight.Limits) { l.Key = n })
	case inflight.ScopeOrg:
		n := rapid.SampledFrom(wideValues).Draw(t, "limit")
		m.setWhere(func(other inflight.Key) bool { return other.Org == k.Org }, func(l *inflight.Limits) { l.Org = n })
	case inflight.ScopeModel:
		n := rapid.SampledFrom(wideValues).Draw(t, "limit")
		m.setWhere(func(other inflight.Key) bool { return other.Model == k.Model }, func(l *inflight.Limits) { l.Model = n })
	case inflight.ScopeTotal:
		n := rapid.SampledFrom(wideValues).Draw(t, "limit")
		m.setWhere(func(inflight.Key) bool { return true }, func(l *inflight.Limits) { l.Total = n })
	}
}

func (m *machine) setWhere(which func(inflight.Key) bool, set func(*inflight.Limits)) {
	for _, k := range keys {
		if which(k) {
			l := m.model.limits[k]
			set(&l)
			m.setLimits(k, l)
		}
	}
}

// stepLimitsOfKey gives one key limits of its own, also where it shares a count with others.
func (m *machine) stepLimitsOfKey(t *rapid.T) {
	m.setLimits(rapid.SampledFrom(keys).Draw(t, "of"), drawLimits(t, keyValues, wideValues))
}

func (m *machine) stepLimitsChanged(*rapid.T) {
	m.reg.LimitsChanged()
	m.model.limitsChanged(time.Now())
}

func (m *machine) stepSweep(t *rapid.T) {
	rep := m.reg.Sweep()
	want := m.model.sweep(time.Now())
	require.Equal(t, want, finding{labels(rep.LongHeld), labels(rep.NewlyLongHeld), labels(rep.HeldTooLong)}, "sweep")
	require.Empty(t, rep.Lost)
	require.Equal(t, len(m.model.waiters), rep.Waiters)
	var longest time.Duration
	if len(m.model.waiters) > 0 {
		longest = time.Since(m.model.waiters[0].since)
	}
	require.Equal(t, longest, rep.LongestWait)
}

func labels(infos []inflight.SlotInfo) []string {
	var names []string
	for _, s := range infos {
		names = append(names, s.Label)
	}
	return names
}

func (m *machine) stepTime(t *rapid.T) {
	time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 2, 4, 9}).Draw(t, "seconds")) * time.Second)
	m.model.pass(time.Now())
}

func (m *machine) stepClose() {
	require.NoError(m, m.reg.Close())
	m.model.close(time.Now())
	synctest.Wait()
}
