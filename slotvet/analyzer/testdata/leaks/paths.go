package leaks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"

	"slots.test/wrap"
)

func never(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path: line 24 returns without it; defer slot.Release\(\) after the error check`
	if err != nil {
		return err
	}
	slot.Key()
	return nil
}

func earlyReturn(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path: line 33 returns without it`
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	slot.Release()
	return nil
}

func noErrorCheck(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if slot.Weight() > 1 {
		return err
	}
	slot.Release()
	return nil
}

func errorOfSomethingElse(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	err = work()
	if err != nil {
		return err
	}
	slot.Release()
	return nil
}

func errorUsedAgain(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return err
	}
	if err = work(); err != nil {
		return err
	}
	slot.Release()
	return nil
}

func wrongError(reg *inflight.Registry) error {
	err := work()
	slot, err2 := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return err
	}
	if err2 != nil {
		return err2
	}
	defer slot.Release()
	return nil
}

func onlyOneError(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if errors.Is(err, inflight.ErrLimit) {
		return nil
	}
	if errors.Is(err, inflight.ErrClosed) || work() != nil {
		return errX
	}
	slot.Release()
	return nil
}

func onlyOneCase(reg *inflight.Registry, n int) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	switch {
	case err != nil:
		return
	case n == 1:
		slot.Release()
	case n == 2:
		work()
	default:
		slot.Release()
	}
}

func deferUnderCondition(reg *inflight.Registry, quick bool) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	if !quick {
		defer slot.Release()
	}
}

func deferBefore(reg *inflight.Registry) (err error) {
	var slot *inflight.Slot
	defer slot.Release()            // the receiver is evaluated here: nil
	slot, err = reg.TryAcquire(key) // want `slot is not released on every path`
	return err
}

func deferOfNothing(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	defer func() { slog.Info("done", "id", slot.ID()) }()
}

func methodsOnly(ctx context.Context, reg *inflight.Registry) error {
	slot, err := reg.Acquire(ctx, key) // want `slot is not released on every path`
	if err != nil {
		return err
	}
	slog.Info("admitted", "id", slot.ID(), "key", slot.Key())
	return nil
}

func contextOnly(w http.ResponseWriter, r *http.Request, reg *inflight.Registry, next http.Handler) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	next.ServeHTTP(w, r.WithContext(slot.Context(r.Context())))
}

func loggedOnly(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	fmt.Println("took", slot)
	print(slot)
}

func blankUse(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err == nil {
		_ = slot
	}
}

func aliasOnly(reg *inflight.Registry) bool {
	slot, _ := reg.TryAcquire(key) // want `slot is not released on every path`
	held := slot
	return held != nil
}

func namedResultReplaced(reg *inflight.Registry) (slot *inflight.Slot, err error) { // want namedResultReplaced:`handsOver\(1\)`
	slot, err = reg.TryAcquire(key) // want `slot is not released on every path: line \d+ returns without it; call slot.Release\(\) before that`
	if err != nil {
		return nil, err
	}
	if err := work(); err != nil {
		return nil, err
	}
	return
}

func sentOrNot(reg *inflight.Registry, slots chan *inflight.Slot) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	select {
	case slots <- slot:
	default:
	}
}

func breakOut(reg *inflight.Registry, jobs []int) {
	for _, job := range jobs {
		slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
		if err != nil {
			continue
		}
		if job < 0 {
			break
		}
		slot.Release()
	}
}

func gotoEnd(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	if work() != nil {
		goto end
	}
	slot.Release()
end:
}

func inClosure(reg *inflight.Registry) func() error {
	return func() error {
		slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
		if err != nil {
			return err
		}
		return slot.Context(context.Background()).Err()
	}
}

func fromTake(r *http.Request) {
	slot := inflight.Take(r.Context()) // want `slot is not released on every path`
	if slot == nil {
		return
	}
	if work() != nil {
		return
	}
	slot.Release()
}

func fromWrapper(ctx context.Context, g *wrap.Gate) error {
	slot, err := g.Enter(ctx, "acme") // want `slot is not released on every path`
	if err != nil {
		return err
	}
	return slot.Context(ctx).Err()
}

func fromMust(reg *inflight.Registry) {
	slot := wrap.Must(reg.TryAcquire(key)) // want `slot is not released on every path`
	if work() != nil {
		return
	}
	slot.Release()
}

func fromOK(reserve func() (*inflight.Slot, bool)) {
	slot, ok := reserve() // want `slot is not released on every path`
	if !ok {
		return
	}
	if work() != nil {
		return
	}
	slot.Release()
}

func TestForgets(t *testing.T) {
	reg, err := inflight.New(inflight.Config{})
	require.NoError(t, err)
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	require.NoError(t, err)
	require.NotNil(t, slot)
	require.Equal(t, key, slot.Key())
}

func declared(reg *inflight.Registry) {
	var slot, err = reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil || slot.Weight() > 1 {
		return
	}
	slot.Release()
}

func otherCondition(reg *inflight.Registry, limited, traced bool) {
	var slot *inflight.Slot
	if limited {
		slot, _ = reg.TryAcquire(key) // want `slot is not released on every path`
	}
	if traced {
		slot.Release()
	}
}

func releasedInPlaceOfAnother(reg *inflight.Registry, other *inflight.Slot) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	use(slot.ID())
	other.Release()
}

func takenAgainButNotReleased(ctx context.Context, reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	ctx = slot.Context(ctx)
	if inflight.Take(ctx) != nil {
		return
	}
}

func conditionChanges(reg *inflight.Registry, limited, traced bool) {
	var slot *inflight.Slot
	if limited {
		slot, _ = reg.TryAcquire(key) // want `slot is not released on every path`
	}
	limited = traced
	if limited {
		slot.Release()
	}
}

func conditionChangesInField(reg *inflight.Registry, is struct{ limited bool }, traced bool) {
	var slot *inflight.Slot
	if is.limited {
		slot, _ = reg.TryAcquire(key) // want `slot is not released on every path`
	}
	is.limited = traced
	if is.limited {
		slot.Release()
	}
}

func conditionChangesElsewhere(reg *inflight.Registry, limited bool, later func(func())) {
	var slot *inflight.Slot
	later(func() { limited = false })
	if limited {
		slot, _ = reg.TryAcquire(key) // want `slot is not released on every path`
	}
	if limited {
		slot.Release()
	}
}

func firstOfTwo(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if slot.Weight() > 1 || err != nil {
		return
	}
	slot.Release()
}

func conditionChangesByAddress(reg *inflight.Registry, limited bool, change func(*bool)) {
	var slot *inflight.Slot
	if limited {
		slot, _ = reg.TryAcquire(key) // want `slot is not released on every path`
	}
	change(&limited)
	if limited {
		slot.Release()
	}
}

func sureAndJoined(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return err
	}
	if err = errors.Join(err, work()); err != nil {
		return err
	}
	slot.Release()
	return nil
}

func sureAndPassedOn(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return err
	}
	use(err)
	use(slot.ID())
	return work()
}

func doubtfulUntilAsked(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	use(err)
	if err != nil {
		return err
	}
	use(slot.ID())
	return work()
}

func otherConstant(reg *inflight.Registry) {
	held := false
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return
	}
	if held {
		slot.Release()
	}
}

func constantCounts(reg *inflight.Registry) {
	n := 0
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	n++
	if err != nil {
		return
	}
	if n == 0 {
		slot.Release()
	}
}

func responseOnly(reg *inflight.Registry, r *http.Request) (*http.Response, error) {
	slot, err := reg.TryAcquire(key) // want `slot is not released on every path`
	if err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r.WithContext(slot.Context(r.Context())))
}

func otherIndex(reg *inflight.Registry, marked []bool, i int) {
	var slot *inflight.Slot
	if marked[i] {
		slot, _ = reg.TryAcquire(key) // want `slot is not released on every path`
	}
	i++
	if marked[i] {
		slot.Release()
	}
}
