package silent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/inflight-go/inflight"
)

func initStatement(reg *inflight.Registry) {
	if slot, err := reg.TryAcquire(key); err == nil {
		defer slot.Release()
	}
}

func elseBranch(reg *inflight.Registry) error {
	if slot, err := reg.TryAcquire(key); err != nil {
		return err
	} else {
		defer slot.Release()
	}
	return nil
}

func yoda(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if nil != err {
		return
	}
	slot.Release()
}

func negated(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if !(err == nil) {
		return
	}
	slot.Release()
}

func slotIsNil(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	if slot == nil {
		return
	}
	slot.Release()
}

func conjunction(reg *inflight.Registry, n int) {
	slot, err := reg.TryAcquire(key)
	if err == nil && n > 0 {
		slot.Release()
		return
	}
	if err != nil || slot == nil {
		return
	}
	slot.Release()
}

func certainError(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if errors.Is(err, inflight.ErrLimit) {
		return errX
	}
	var limit *inflight.LimitError
	if errors.As(err, &limit) && limit.Scope == inflight.ScopeTotal {
		return errX
	}
	if err == inflight.ErrClosed {
		return errX
	}
	if err != nil {
		return err
	}
	slot.Release()
	return nil
}

func errorSwitch(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	switch {
	case errors.Is(err, inflight.ErrLimit):
		return nil
	case err != nil:
		return err
	}
	defer slot.Release()
	return work()
}

func errorTagSwitch(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	switch err {
	case nil:
		slot.Release()
	case inflight.ErrClosed:
		return nil
	default:
		return err
	}
	return nil
}

func errorTypeSwitch(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	switch err := err.(type) {
	case nil:
		slot.Release()
		return nil
	case *inflight.LimitError:
		return err
	default:
		return errX
	}
}

func errorTypeSwitchAlone(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	switch err.(type) {
	case *inflight.LimitError:
		return err
	}
	if err == nil {
		slot.Release()
	}
	return err
}

func switchOnTrue(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	switch err == nil {
	case true:
		slot.Release()
	}
}

func errorWrapped(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	err = wrapped(err)
	if err != nil {
		return err
	}
	slot.Release()
	return nil
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("slot: %w", err)
}

func errorKept(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	first := err
	err = work()
	if first != nil {
		return err
	}
	slot.Release()
	return nil
}

func asked(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	ok := err == nil
	busy := errors.Is(err, inflight.ErrLimit)
	if busy || !ok {
		return
	}
	slot.Release()
}

func ownPredicate(reg *inflight.Registry) int {
	slot, err := reg.TryAcquire(key)
	if isBusy(err) {
		return http.StatusTooManyRequests
	} else if err != nil {
		return http.StatusInternalServerError
	}
	slot.Release()
	return http.StatusOK
}

func isBusy(err error) bool { return errors.Is(err, inflight.ErrLimit) }

func typeAsked(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if limit, ok := err.(*inflight.LimitError); ok {
		return limit
	}
	if err == nil {
		slot.Release()
	}
	return err
}

func ok(reserve func() (*inflight.Slot, bool)) {
	slot, ok := reserve()
	if !ok {
		return
	}
	slot.Release()
}

func onlyIfLimited(reg *inflight.Registry, limited bool) error {
	var slot *inflight.Slot
	if limited {
		var err error
		if slot, err = reg.TryAcquire(key); err != nil {
			return err
		}
	}
	err := work()
	if limited {
		slot.Release()
	}
	return err
}

func onlyInMode(reg *inflight.Registry, cfg struct{ Mode string }) {
	var slot *inflight.Slot
	switch cfg.Mode {
	case "limited":
		slot, _ = reg.TryAcquire(key)
	}
	work()
	if cfg.Mode == "limited" {
		slot.Release()
	}
}

func ifThereIsOne(reg *inflight.Registry, limited bool) {
	var slot *inflight.Slot
	if limited {
		slot, _ = reg.TryAcquire(key)
	}
	if slot != nil {
		slot.Release()
	}
}

func retry(ctx context.Context, reg *inflight.Registry) error {
	var slot *inflight.Slot
	var err error
	for range 3 {
		slot, err = reg.Acquire(ctx, key)
		if err == nil {
			break
		}
		if !errors.Is(err, inflight.ErrLimit) {
			return err
		}
	}
	if err != nil {
		return err
	}
	defer slot.Release()
	return work()
}

func secondChance(ctx context.Context, reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		slot, err = reg.Acquire(ctx, key)
	}
	if err != nil {
		return err
	}
	defer slot.Release()
	return work()
}

func releasedInConstantRange(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	for range 3 {
		go slot.Release()
	}
}

func certainTypeOfError(enter func() (*inflight.Slot, *inflight.LimitError)) {
	slot, refusal := enter()
	if refusal != nil {
		return
	}
	slot.Release()
}

func onlyIfMany(reg *inflight.Registry, n int) {
	var slot *inflight.Slot
	if n > 3 {
		slot, _ = reg.TryAcquire(key)
	}
	work()
	if n > 3 {
		slot.Release()
	}
}

func onlyIfLimitedAndMore(reg *inflight.Registry, limited, traced bool) {
	var slot *inflight.Slot
	if traced && limited {
		slot, _ = reg.TryAcquire(key)
	}
	work()
	if limited {
		slot.Release()
	}
}

// tooManyPaths is not followed to the end, so nothing is said about it.
func tooManyPaths(reg *inflight.Registry, is struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o bool }) {
	slot, _ := reg.TryAcquire(key)
	println(slot.ID())
	if is.a {
		work()
	}
	if is.b {
		work()
	}
	if is.c {
		work()
	}
	if is.d {
		work()
	}
	if is.e {
		work()
	}
	if is.f {
		work()
	}
	if is.g {
		work()
	}
	if is.h {
		work()
	}
	if is.i {
		work()
	}
	if is.j {
		work()
	}
	if is.k {
		work()
	}
	if is.l {
		work()
	}
	if is.m {
		work()
	}
	if is.n {
		work()
	}
	if is.o {
		work()
	}
	if is.a {
		work()
	}
	if is.b {
		work()
	}
	if is.c {
		work()
	}
	if is.d {
		work()
	}
	if is.e {
		work()
	}
	if is.f {
		work()
	}
	if is.g {
		work()
	}
	if is.h {
		work()
	}
	if is.i {
		work()
	}
	if is.j {
		work()
	}
	if is.k {
		work()
	}
	if is.l {
		work()
	}
	if is.m {
		work()
	}
	if is.n {
		work()
	}
	if is.o {
		work()
	}
}

func onlyIfMarked(reg *inflight.Registry, marked []bool) {
	for i := range marked {
		var slot *inflight.Slot
		if marked[i] {
			slot, _ = reg.TryAcquire(key)
		}
		work()
		if marked[i] {
			slot.Release()
		}
	}
}
