package silent

import (
	"context"
	"errors"
	"testing"

	"github.com/inflight-go/inflight"
)

func heldInMind(reg *inflight.Registry) {
	held := false
	slot, err := reg.TryAcquire(key)
	if err == nil {
		held = true
	}
	work()
	if held {
		slot.Release()
	}
}

func heldInMindTogether(reg *inflight.Registry, limited bool) error {
	var slot *inflight.Slot
	var held bool
	if limited {
		s, err := reg.TryAcquire(key)
		if err != nil {
			return err
		}
		slot, held = s, true
	}
	err := work()
	if held {
		slot.Release()
	}
	return err
}

func degraded(reg *inflight.Registry) error {
	degraded := false
	slot, err := reg.TryAcquire(key)
	if errors.Is(err, inflight.ErrLimit) {
		degraded, err = true, nil
	}
	if err != nil {
		return err
	}
	if !degraded {
		slot.Release()
	}
	return nil
}

func statusInMind(reg *inflight.Registry) int {
	status := 200
	slot, err := reg.TryAcquire(key)
	if err != nil {
		status = inflight.StatusOf(err)
	}
	if status != 200 {
		return status
	}
	slot.Release()
	return status
}

func namedError(reg *inflight.Registry) (err error) {
	slot, refusal := reg.TryAcquire(key)
	if refusal != nil {
		err = refusal
	}
	if err != nil {
		return
	}
	slot.Release()
	return
}

func status(reg *inflight.Registry) int {
	slot, err := reg.TryAcquire(key)
	status := inflight.StatusOf(err)
	if status >= 400 {
		return status
	}
	slot.Release()
	return status
}

func statusAsked(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	switch inflight.StatusOf(err) {
	case 429, 503:
		return
	}
	slot.Release()
}

func ownPredicateOfYes(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if !isFine(err) {
		return
	}
	slot.Release()
}

func ownPredicateKept(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	fine := isFine(err)
	if !fine {
		return
	}
	slot.Release()
}

func isFine(err error) bool { return err == nil }

func askedInClosure(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if refused := func() bool { return err != nil }; refused() {
		return
	}
	slot.Release()
}

func askedByAddress(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if refusal := &err; *refusal != nil {
		return
	}
	slot.Release()
}

func askedInField(reg *inflight.Registry) (h holder) {
	slot, err := reg.TryAcquire(key)
	h.err = err
	if h.err != nil {
		return h
	}
	slot.Release()
	return h
}

func askedByReceiver(reg *inflight.Registry, errs chan error) error {
	slot, err := reg.TryAcquire(key)
	errs <- err
	if err := <-errs; err != nil {
		return err
	}
	slot.Release()
	return nil
}

func TestRefusedByHelper(t *testing.T) {
	reg, _ := inflight.New(inflight.Config{})
	_, err := reg.TryAcquire(key)
	mustRefuse(t, err)
}

func mustRefuse(t *testing.T, err error) {
	if err == nil {
		t.Fatal("admitted")
	}
}

func TestRefusedPlainly(t *testing.T) {
	reg, _ := inflight.New(inflight.Config{})
	if _, err := reg.TryAcquire(key); !errors.Is(err, inflight.ErrLimit) {
		t.Errorf("err is %v", err)
	}
	if _, err := reg.TryAcquire(key); err == nil {
		t.Error("admitted")
	}
}

func lookedUp(slots interface {
	Get(id string) (*inflight.Slot, error)
}) uint64 {
	slot, err := slots.Get("a")
	if err != nil {
		return 0
	}
	return slot.ID()
}

func lookedUpWithOK[V any](slots interface{ At(id string) (V, bool) }) (v V, ok bool) {
	return slots.At("a")
}

func lookedUpInGeneric(slots cache[*inflight.Slot]) uint64 {
	slot, ok := slots.At("a")
	if !ok {
		return 0
	}
	return slot.ID()
}

type cache[V any] interface{ At(id string) (V, bool) }

func contextReturned(ctx context.Context, reg *inflight.Registry) (context.Context, error) {
	slot, err := reg.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return context.WithValue(slot.Context(ctx), holder{}, 1), nil
}

func contextStored(ctx context.Context, reg *inflight.Registry) (*session, error) {
	slot, err := reg.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(slot.Context(ctx))
	return &session{ctx, cancel}, nil
}

func contextStoredInField(ctx context.Context, reg *inflight.Registry, s *session) {
	slot, err := reg.Acquire(ctx, key)
	if err == nil {
		s.ctx, s.cancel = context.WithCancel(slot.Context(ctx))
	}
}

type session struct {
	ctx    context.Context
	cancel func()
}

func contextOfSession(ctx context.Context, reg *inflight.Registry) (*session, error) {
	slot, err := reg.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return newSession(slot.Context(ctx)), nil
}

func newSession(ctx context.Context) *session { return &session{ctx: ctx} }

func contextToGoroutine(ctx context.Context, reg *inflight.Registry, serve func(context.Context)) {
	slot, err := reg.Acquire(ctx, key)
	if err == nil {
		go serve(slot.Context(ctx))
	}
}

func contextToTaker(ctx context.Context, reg *inflight.Registry) error {
	slot, err := reg.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return taker(slot.Context(ctx))
}

func contextToTakerInClosure(ctx context.Context, reg *inflight.Registry, start func(func() error)) {
	slot, err := reg.Acquire(ctx, key)
	if err == nil {
		start(func() error { return taker(slot.Context(ctx)) })
	}
}

func taker(ctx context.Context) error {
	defer inflight.Take(ctx).Release()
	return work()
}

func constantCondition(reg *inflight.Registry) {
	const debug = false
	slot, _ := reg.TryAcquire(key)
	if debug {
		return
	}
	slot.Release()
}

func statusAmongOwn(reg *inflight.Registry) {
	const admitted, refused = 1, 2
	verdict := admitted
	slot, err := reg.TryAcquire(key)
	if err != nil {
		verdict = refused
	}
	if verdict == refused {
		return
	}
	slot.Release()
}

func shownByAcquire(s shelf) uint64 { return s.Acquire("a").ID() }

type shelf map[string]*inflight.Slot

func (s shelf) Acquire(id string) *inflight.Slot { return s[id] }

func errorsGathered(reg *inflight.Registry) error {
	var errs []error
	slot, err := reg.TryAcquire(key)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	slot.Release()
	return nil
}
