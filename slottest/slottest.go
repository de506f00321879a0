// Package slottest helps to test code that takes slots: that it gives back every one, also where it fails, and what it
// does when there is no room.
//
//	func TestHandler(t *testing.T) {
//		reg := slottest.New(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 2})})
//		server := httptest.NewServer(limited(reg, handler))
//		t.Cleanup(server.Close)
//
//		free := slottest.Hold(t, reg, acme, 2) // now it is full
//		... // what does a client see?
//		free()
//		... // and now?
//	} // fails if a slot is still held, and says where it was acquired
//
// Everything here also works inside a bubble of testing/synctest. It then wants the *testing.T of the bubble.
package slottest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/inflight-go/inflight"
)

// New makes a registry for a test. When the test ends, it is checked as by Empty and then closed.
//
// CaptureStack is set, whatever cfg says. Where cfg says nothing, there is no sweeper (call Sweep, or set
// SweepInterval), the name is that of the test, and what is logged goes to the log of the test. If cfg is wrong the test
// fails at once.
//
// Cleanups run last to first. So make the registry before the servers and clients that use it: their cleanups then
// run before the check, and what they hold is given back by then.
func New(tb testing.TB, cfg inflight.Config) *inflight.Registry {
	tb.Helper()
	cfg.CaptureStack = true
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = -1
	}
	if cfg.Name == "" {
		cfg.Name = strings.ToValidUTF8(tb.Name(), "?")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), nil))
	}
	reg, err := inflight.New(cfg)
	if err != nil {
		tb.Fatalf("slottest: %v", err)
	}
	tb.Cleanup(func() { _ = reg.Close() }) // always nil
	Empty(tb, reg)
	return reg
}

// Empty checks, when the test ends, that nobody holds a slot of reg. Otherwise the test fails, and the oldest slots are
// listed with their id, key, label, weight, age and, if Config.CaptureStack is set, the stack of whoever acquired them. It
// changes nothing in the registry, which may be closed or not.
//
// A slot that is just being released is waited for, at most five seconds: a handler may well return a moment after the
// client has its answer.
//
// Cleanups run last to first. So call it right after the registry was made, before anything else has a cleanup. The
// registry should be used by this test only.
func Empty(tb testing.TB, reg *inflight.Registry) {
	tb.Helper()
	if reg == nil {
		tb.Fatalf("slottest: no registry to check: it is nil")
	}
	tb.Cleanup(func() {
		tb.Helper()
		if !until(func() bool { return reg.Stats().Holders == 0 }) {
			tb.Errorf("slottest: %s", leftIn(reg))
		}
	})
}

// Hold takes n slots of a key. They are released by the function returned, which may be called many times, or else when
// the test ends. If there is no room for all of them, the test fails at once; with the option MaxWait Hold waits for it.
// A negative n is 0.
//
// It must be called from the goroutine of the test.
func Hold(tb testing.TB, a inflight.Acquirer, k inflight.Key, n int, opts ...inflight.Option) (release func()) {
	tb.Helper()
	var slots []*inflight.Slot
	release = func() {
		for _, s := range slots {
			s.Release()
		}
	}
	tb.Cleanup(release)
	ctx := context.WithoutCancel(tb.Context())                     // or nothing could be held in a cleanup
	opts = append([]inflight.Option{inflight.MaxWait(0)}, opts...) // that of the caller comes later and so counts
	for i := range n {
		s, err := a.Acquire(ctx, k, opts...)
		if err != nil {
			tb.Fatalf("slottest: cannot hold slot %d of %d: %v", i+1, n, err)
		}
		slots = append(slots, s)
	}
	return release
}

// WaitInUse waits until the weight in use for a key is n, at most five seconds. If it is not by then, the test fails at
// once, and all slots are listed as by Empty.
//
// In a bubble of testing/synctest the clock moves while it waits, by a few nanoseconds if all there is to wait for is
// that other goroutines get to run. If there is nothing to wait for, it does not move. It must be called from the
// goroutine of the test.
func WaitInUse(tb testing.TB, reg *inflight.Registry, k inflight.Key, n int) {
	tb.Helper()
	waitFor(tb, reg, n, k.String()+" in use", func() int { return reg.InUse(k) })
}

// WaitWaiters waits until n acquires wait for a slot of a key, in the manner of WaitInUse. Those who name the key only in
// Also are not counted.
func WaitWaiters(tb testing.TB, reg *inflight.Registry, k inflight.Key, n int) {
	tb.Helper()
	waitFor(tb, reg, n, "waiting for "+k.String(), func() int {
		waiting := 0
		for _, w := range reg.Waiters(0) {
			if w.Key == k {
				waiting++
			}
		}
		return waiting
	})
}

func waitFor(tb testing.TB, reg *inflight.Registry, want int, what string, count func() int) {
	tb.Helper()
	var got int
	if !until(func() bool { got = count(); return got == want }) {
		tb.Fatalf("slottest: %d %s after %v, want %d: %s", got, what, patience, want, leftIn(reg))
	}
}

const (
	patience = 5 * time.Second
	longest  = 10 * time.Millisecond // between two looks
)

// until looks until done is true, or patience has run out. The first pauses are next to nothing: in a bubble the
// shortest of sleeps lasts until all other goroutines are blocked, and should not move the clock more than it must.
func until(done func() bool) bool {
	began := time.Now()
	for pause := time.Nanosecond; !done(); pause = min(2*pause, longest) {
		if time.Since(began) >= patience {
			return false
		}
		time.Sleep(pause) //nolint:forbidigo // this is for tests, and works in and out of a bubble as nothing else does
	}
	return true
}

// listed is how many slots a failure shows: the oldest, which are the most likely to have been forgotten.
const listed = 20

// leftIn says who holds slots and how many wait.
func leftIn(reg *inflight.Registry) string {
	var text strings.Builder
	stats := reg.Stats()
	fmt.Fprintf(&text, "%d not released, %d waiting", stats.Holders, stats.Waiters)
	for _, s := range reg.Slots(listed) {
		fmt.Fprintf(&text, "\nslot %d of %v, label %q, weight %d, held for %v", s.ID, s.Key, s.Label, s.Weight, s.Held)
		if len(s.Also) > 0 {
			fmt.Fprintf(&text, ", also of %v", s.Also)
		}
		if s.Stack == "" {
			text.WriteString(" (Config.CaptureStack would tell where it was acquired)")
			continue
		}
		text.WriteString(", acquired at")
		for line := range strings.Lines(s.Stack) {
			text.WriteString("\n\t" + strings.TrimSuffix(line, "\n"))
		}
	}
	if more := stats.Holders - listed; more > 0 {
		fmt.Fprintf(&text, "\nand %d more", more)
	}
	return text.String()
}
