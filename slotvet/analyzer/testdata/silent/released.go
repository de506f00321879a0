package silent

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"

	"slots.test/wrap"
)

func deferred(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return err
	}
	defer slot.Release()
	return work()
}

func deferredBeforeCheck(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	defer slot.Release() // of nil does nothing
	if err != nil {
		return err
	}
	return work()
}

func deferredClosure(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return err
	}
	defer func() {
		work()
		slot.Release()
	}()
	return work()
}

func deferredClosureBefore(reg *inflight.Registry) (err error) {
	var slot *inflight.Slot
	defer func() { slot.Release() }()
	if slot, err = reg.TryAcquire(key); err != nil {
		return err
	}
	return work()
}

func deferredClosureWithAlias(reg *inflight.Registry) error {
	var mine *inflight.Slot
	defer func() { mine.Release() }()
	slot, err := reg.TryAcquire(key)
	if err == nil {
		mine = slot
	}
	return err
}

func deferredClosureRenames(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	defer func() {
		mine := slot
		mine.Release()
	}()
}

func addressTaken(reg *inflight.Registry) (err error) {
	var slot *inflight.Slot
	defer releaseAt(&slot)
	slot, err = reg.TryAcquire(key)
	return err
}

func releaseAt(slot **inflight.Slot) { (*slot).Release() }

func deferredUnderCondition(reg *inflight.Registry, quick bool) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	if quick {
		slot.Release()
	} else {
		defer slot.Release()
	}
	work()
}

func deferredCall(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	defer release(slot)
}

func everyPath(reg *inflight.Registry) error {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		slot.Release()
		return err
	}
	slot.Release()
	return nil
}

func chained(r *http.Request) {
	inflight.Take(r.Context()).Release()
}

func methodValueDeferred(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	release := slot.Release
	defer release()
}

func afterFunc(ctx context.Context, reg *inflight.Registry) {
	slot, err := reg.Acquire(ctx, key)
	if err != nil {
		return
	}
	context.AfterFunc(ctx, slot.Release)
}

func once(reg *inflight.Registry) func() {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return nil
	}
	return sync.OnceFunc(slot.Release)
}

func goRelease(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	go slot.Release()
}

func evicted(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	reg.Evict(slot.ID())
}

func takenAgain(w http.ResponseWriter, r *http.Request, reg *inflight.Registry, next http.Handler) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	ctx := slot.Context(r.Context())
	next.ServeHTTP(w, r.WithContext(ctx))
	if inflight.Take(ctx) != nil {
		slot.Release()
	}
}

func takenAgainAtOnce(w http.ResponseWriter, r *http.Request, reg *inflight.Registry, next http.Handler) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	ctx := slot.Context(r.Context())
	next.ServeHTTP(w, r.WithContext(ctx))
	inflight.Take(ctx).Release()
}

func takenAgainThroughRequest(w http.ResponseWriter, r *http.Request, reg *inflight.Registry, next http.Handler) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	r = r.WithContext(slot.Context(r.Context()))
	defer func() { inflight.Take(r.Context()).Release() }()
	next.ServeHTTP(w, r)
}

func leave(ctx context.Context, slot *inflight.Slot) {
	if inflight.Take(slot.Context(ctx)) != nil {
		slot.Release()
	}
}

func alias(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	mine := slot
	defer mine.Release()
}

func aliasAsInterface(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	var releaser interface{ Release() } = slot
	releaser.Release()
}

func aliasAsserted(reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	var held any = slot
	mine, ok := held.(*inflight.Slot)
	if ok {
		mine.Release()
	}
}

func panics(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		panic(err)
	}
	if slot.Weight() > 1 {
		panic("too heavy")
	}
	slot.Release()
}

func exits(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		log.Fatal(err)
	}
	if slot.Weight() > 1 {
		os.Exit(1)
	}
	if slot.Weight() > 2 {
		runtime.Goexit()
	}
	wrap.Fatal(slot.Key())
}

func servesForEver(reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		return
	}
	for {
		println(slot.ID())
	}
}

func TestCleanup(t *testing.T) {
	reg, err := inflight.New(inflight.Config{})
	require.NoError(t, err)
	slot, err := reg.TryAcquire(key)
	require.NoError(t, err)
	t.Cleanup(slot.Release)
}

func TestRefused(t *testing.T) {
	reg, err := inflight.New(inflight.Config{})
	require.NoError(t, err)
	_, err = reg.TryAcquire(key)
	require.ErrorIs(t, err, inflight.ErrLimit)
	_, err = reg.TryAcquire(key)
	require.Error(t, err)
	_, err = reg.TryAcquire(key)
	require.True(t, errors.Is(err, inflight.ErrClosed))
	_, err = reg.TryAcquire(key)
	require.False(t, err == nil)
	if _, err := reg.TryAcquire(key); err == nil {
		t.Fatal("admitted")
	}
	_, err = reg.TryAcquire(key)
	require.NotNil(t, err)
	slot := inflight.Take(t.Context())
	require.Nil(t, slot)
}

func benchmark(tb testing.TB, reg *inflight.Registry) {
	slot, err := reg.TryAcquire(key)
	if err != nil {
		tb.Fatal(err)
	}
	if !assert.NoError(tb, err) {
		return
	}
	slot.Release()
}

func asserted(tb testing.TB, reg *inflight.Registry) {
	slot, _ := reg.TryAcquire(key)
	if assert.NotNil(tb, slot) {
		slot.Release()
	}
}

func fatal(tb testing.TB, reg *inflight.Registry, n int) {
	slot, _ := reg.TryAcquire(key)
	switch n {
	case 1:
		tb.Fatal(slot)
	case 2:
		require.FailNow(tb, "two")
	default:
		slot.Release()
	}
}
