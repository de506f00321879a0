package modelcheck_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inflight-go/inflight"
)

// The registry and the model are put through the same random steps, in fake time. After each step, when every goroutine
// has settled, they must agree on all that can be seen from outside.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newMachine(t)
			defer m.stop()
			m.run()
		})
	})
}

// A machine drives a registry and its model side by side.
type machine struct {
	*rapid.T

	reg   *inflight.Registry
	model *model
	ops   []*op

	mu     sync.Mutex
	limits map[inflight.Key]inflight.Limits
}

// An op is one acquire and what came of it.
type op struct {
	name   string
	cancel context.CancelFunc
	onStop context.CancelFunc // nil or of the context behind that
	ended  chan struct{}      // closed when slot, err and ctx are set
	slot   *inflight.Slot
	err    error
	ctx    context.Context //nolint:containedctx // that of the slot, to see why it ends
}

func newMachine(t *rapid.T) *machine {
	m := &machine{T: t, limits: map[inflight.Key]inflight.Limits{}}
	cfg := inflight.Config{
		Limits: func(k inflight.Key) inflight.Limits {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.limits[k]
		},
		MaxWaiters:       rapid.SampledFrom([]int{6, 3, -1}).Draw(t, "MaxWaiters"),
		MaxWaitersPerKey: rapid.SampledFrom([]int{4, 2}).Draw(t, "MaxWaitersPerKey"),
		LongHeld:         10 * time.Second,
		MaxHold:          20 * time.Second,
		SweepInterval:    -1,
		Logger:           slog.New(slog.DiscardHandler),
	}
	reg, err := inflight.New(cfg)
	require.NoError(t, err)
	m.reg = reg
	m.model = &model{
		cfg: cfg, limits: map[inflight.Key]inflight.Limits{}, settled: map[string]outcome{}, causes: map[string]error{},
		stats: totals{peaks: make([]peak, 1)},
	}
	l := drawLimits(t, firstKeyValues, firstWideValues)
	for _, k := range keys {
		m.setLimits(k, l)
	}
	return m
}

var (
	orgs   = []string{"acme", "zebra"}
	models = []string{"glm", "yi"}
	keys   = allKeys()

	// What limits are drawn from: at first such as make waiters, later all kinds.
	firstKeyValues  = []int{2, 1, 3}
	firstWideValues = []int{0, 2, 3, 4}
	keyValues       = []int{2, 1, 3, 0, inflight.Unlimited, inflight.Blocked}
	wideValues      = []int{0, 2, 3, 4, 1, inflight.Unlimited, inflight.Blocked}
)

func drawLimits(t *rapid.T, key, wide []int) inflight.Limits {
	return inflight.Limits{
		Key:   rapid.SampledFrom(key).Draw(t, "key"),
		Org:   rapid.SampledFrom(wide).Draw(t, "org"),
		Model: rapid.SampledFrom(wide).Draw(t, "model"),
		Total: rapid.SampledFrom(wide).Draw(t, "total"),
	}
}

func allKeys() []inflight.Key {
	var all []inflight.Key
	for _, o := range orgs {
		for _, m := range models {
			all = append(all, inflight.Key{Org: o, Model: m})
		}
	}
	return all
}

func (m *machine) setLimits(k inflight.Key, l inflight.Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits[k], m.model.limits[k] = l, l
}

// run takes random steps, and then lets everybody go: some with the registry closed, some as they gave up.
func (m *machine) run() {
	m.Repeat(m.steps())
	if rapid.Bool().Draw(m.T, "close") {
		m.stepClose()
		m.check()
		m.stepTry(m.T)
		m.stepAcquire(m.T)
		m.check()
	}
	for _, o := range m.ops {
		if !o.done() && rapid.Bool().Draw(m.T, "gives up") {
			o.cancel()
			m.model.cancel(o.name, time.Now())
			m.check()
		}
	}
	for len(m.model.holders) > 0 {
		m.stepReleaseOldest(m.T)
		m.check()
	}
	for _, o := range m.ops {
		if !o.done() { // its limits are too low for it, even now
			o.cancel()
			m.model.cancel(o.name, time.Now())
			m.check()
		}
	}
	require.Empty(m, m.model.holders)
	require.Empty(m, m.model.waiters)
	require.Empty(m, m.reg.Keys(0))
}

// stop lets a failed check end: no goroutine may stay in the bubble.
func (m *machine) stop() {
	for _, o := range m.ops {
		o.cancel()
		o.onStop()
	}
	_ = m.reg.Close()
	synctest.Wait()
}

// newOp makes the next op, which start runs.
func (m *machine) newOp() *op {
	nothing := func() {}
	o := &op{name: fmt.Sprintf("op%d", len(m.ops)), ended: make(chan struct{}), cancel: nothing, onStop: nothing}
	m.ops = append(m.ops, o)
	return o
}

// start runs an acquire on a goroutine of its own, and returns when it has settled or waits.
func (m *machine) start(ctx context.Context, o *op, acquire func(context.Context) (*inflight.Slot, error)) {
	ctx, o.cancel = context.WithCancel(ctx)
	go func() {
		defer close(o.ended)
		if o.slot, o.err = acquire(ctx); o.err == nil {
			o.ctx = o.slot.Context(context.Background())
			_ = o.ctx.Done() // what nobody asks for does not exist
		}
	}()
	synctest.Wait()
}

// done says whether the acquire has returned.
func (o *op) done() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}
