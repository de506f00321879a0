package slottest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/slottest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var acme = inflight.Key{Org: "acme", Model: "glm"}

// A fakeT is a test that may fail without failing the one that looks on.
type fakeT struct {
	testing.TB // nil: what is not here is not called

	ctx      context.Context //nolint:containedctx // what Context returns
	end      context.CancelFunc
	cleanups []func()
	failures []string
	log      bytes.Buffer
}

func (t *fakeT) Helper()                  {}
func (t *fakeT) Name() string             { return "TestFake/\xff" }
func (t *fakeT) Context() context.Context { return t.ctx }
func (t *fakeT) Output() io.Writer        { return &t.log }
func (t *fakeT) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }

func (t *fakeT) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *fakeT) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// failuresOf runs a test to its end, cleanups included, and returns what it failed with.
func failuresOf(test func(t *fakeT)) []string {
	t := new(fakeT)
	t.ctx, t.end = context.WithCancel(context.Background())
	run := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	run(func() { test(t) })
	t.end() // comes before the cleanups, as in package testing
	for _, f := range slices.Backward(t.cleanups) {
		run(f)
	}
	return t.failures
}

// try takes a slot, for which there must be room.
func try(reg *inflight.Registry, opts ...inflight.Option) *inflight.Slot {
	slot, err := reg.TryAcquire(acme, opts...)
	if err != nil {
		panic(err)
	}
	return slot
}

func TestForgottenSlotFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := failuresOf(func(t *fakeT) {
			reg := slottest.New(t, inflight.Config{})
			try(reg).Release()
			//slotvet:ignore forgotten on purpose
			try(reg, inflight.Label("req-7"), inflight.Weight(3), inflight.Also(inflight.Key{Org: "all", Model: "glm"}))
		})
		require.Len(t, failures, 1)
		require.Regexp(t, `^slottest: 1 not released, 0 waiting\n`+
			`slot 2 of acme/glm, label "req-7", weight 3, held for [5-9](\.\d+)?s, also of \[all/glm\], acquired at\n`+
			`\t.*slottest_test\.try\n\t\t.*slottest_test\.go:\d+\n`+
			`\t.*slottest_test\.TestForgottenSlotFails`, failures[0])
	})
}

// Who waits without end waits for a slot that is held without end, so it is enough to say how many they are.
func TestForgottenWaiterIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		failures := failuresOf(func(t *fakeT) {
			reg := slottest.New(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
			try(reg) //slotvet:ignore forgotten on purpose
			go func() {
				_, err := reg.Acquire(context.Background(), acme) //slotvet:ignore it waits until the registry is closed
				ended <- err
			}()
			slottest.WaitWaiters(t, reg, acme, 1)
		})
		require.Len(t, failures, 1)
		require.Contains(t, failures[0], "1 not released, 1 waiting")
		require.ErrorIs(t, <-ended, inflight.ErrClosed, "the registry is closed after the check")
	})
}

// A release that comes a moment after the end of the test is early enough, and that comes with the end of its context too.
func TestSlotThatIsJustReleasedPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Empty(t, failuresOf(func(t *fakeT) {
			reg := slottest.New(t, inflight.Config{})
			slot, other := try(reg), try(reg)
			context.AfterFunc(t.Context(), func() {
				time.Sleep(50 * time.Millisecond)
				slot.Release()
			})
			t.Cleanup(func() { go other.Release() })
		}))
	})
}

// Empty can be had without New, which then does not say where slots came from. A long list is cut.
func TestEmptyListsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := failuresOf(func(t *fakeT) {
			reg, err := inflight.New(inflight.Config{SweepInterval: -1})
			require.NoError(t, err)
			slottest.Empty(t, reg)
			for range 22 {
				try(reg) //slotvet:ignore forgotten on purpose
			}
		})
		require.Len(t, failures, 1)
		lines := strings.Split(failures[0], "\n")
		require.Len(t, lines, 22)
		require.Equal(t, "slottest: 22 not released, 0 waiting", lines[0])
		require.Regexp(t, `^slot 1 of acme/glm, .* \(Config.CaptureStack would tell where it was acquired\)$`, lines[1])
		require.Regexp(t, `^slot 20 `, lines[20])
		require.Equal(t, "and 2 more", lines[21])
	})
}

// What New adds to a Config, and that it leaves the rest.
func TestNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Empty(t, failuresOf(func(t *fakeT) {
			reg := slottest.New(t, inflight.Config{LongHeld: time.Second, Limits: inflight.Fixed(inflight.Limits{Key: 1})})
			free := slottest.Hold(t, reg, acme, 1)
			time.Sleep(time.Hour)
			require.Zero(t, reg.Stats().Sweeps, "no sweeper")
			require.Contains(t, reg.Sweep().LongHeld[0].Stack, "TestNew")
			require.Equal(t, "TestFake/?", reg.Name())
			require.Contains(t, t.log.String(), `msg="inflight: slot held long" registry=TestFake/? id=1 key=acme/glm`)
			free()
		}))
		require.Empty(t, failuresOf(func(t *fakeT) {
			reg := slottest.New(t, inflight.Config{Name: "mine", SweepInterval: time.Minute})
			time.Sleep(90 * time.Second)
			require.EqualValues(t, 1, reg.Stats().Sweeps)
			require.Equal(t, "mine", reg.Name())
		}))
		require.Equal(t, []string{"slottest: inflight: Config.Name: not valid UTF-8"}, failuresOf(func(t *fakeT) {
			slottest.New(t, inflight.Config{Name: "\xff"})
		}))
	})
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := slottest.New(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 4})})
		require.Empty(t, failuresOf(func(t *fakeT) {
			slottest.Hold(t, reg, acme, 1)
			free := slottest.Hold(t, reg, acme, 1, inflight.Weight(2), inflight.Label("heavy"))
			require.Equal(t, 3, reg.InUse(acme))
			require.Equal(t, "heavy", reg.Slots(0)[1].Label)
			free()
			free()
			require.Equal(t, 1, reg.InUse(acme))
			slottest.Hold(t, reg, acme, -1)
			slottest.Hold(t, reg, acme, 3)
		}))
		require.Zero(t, reg.InUse(acme), "released when the test had ended")

		require.Equal(t, []string{
			"slottest: cannot hold slot 5 of 5: inflight: key limit reached for acme/glm: 4 of 4 in use",
		}, failuresOf(func(t *fakeT) { slottest.Hold(t, reg, acme, 5) }))
		require.Zero(t, reg.InUse(acme), "those before it too")
	})
}

func TestHoldWaitsIfTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := slottest.New(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		free := slottest.Hold(t, reg, acme, 1)
		go func() {
			slottest.WaitWaiters(t, reg, acme, 1)
			free()
		}()
		require.Empty(t, failuresOf(func(t *fakeT) { slottest.Hold(t, reg, acme, 1, inflight.MaxWait(time.Minute)) }))
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := slottest.New(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 2})})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		free := slottest.Hold(t, reg, acme, 2)
		other := inflight.Key{Org: "other", Model: "glm"}
		slottest.Hold(t, reg, other, 2)
		for _, k := range []inflight.Key{acme, acme, other} {
			go func() {
				slot, err := reg.Acquire(ctx, k)
				if err == nil {
					<-ctx.Done()
					slot.Release()
				}
			}()
		}
		slottest.WaitWaiters(t, reg, acme, 2)
		slottest.WaitWaiters(t, reg, other, 1)
		go free()
		slottest.WaitWaiters(t, reg, acme, 0)
		require.Equal(t, 2, reg.InUse(acme))
		cancel()
		slottest.WaitInUse(t, reg, acme, 0)
		slottest.WaitInUse(t, reg, other, 2)
	})
}

// Who waits in vain is told what there is instead.
func TestWaitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		failures := failuresOf(func(t *fakeT) {
			reg := slottest.New(t, inflight.Config{})
			slottest.Hold(t, reg, acme, 1)
			slottest.WaitInUse(t, reg, acme, 2)
			t.Errorf("not at once")
		})
		require.Len(t, failures, 1)
		require.Regexp(t, `^slottest: 1 acme/glm in use after 5s, want 2: 1 not released, 0 waiting\nslot 1 of acme/glm`, failures[0])
		require.InDelta(t, 5*time.Second, time.Since(began), float64(time.Second))

		require.Equal(t, []string{"slottest: 0 waiting for acme/glm after 5s, want 1: 0 not released, 0 waiting"},
			failuresOf(func(t *fakeT) { slottest.WaitWaiters(t, slottest.New(t, inflight.Config{}), acme, 1) }))
	})
}

// All the same with the real clock.
func TestOutsideOfABubble(t *testing.T) {
	failures := failuresOf(func(t *fakeT) {
		reg := slottest.New(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
		free := slottest.Hold(t, reg, acme, 1)
		granted := make(chan *inflight.Slot)
		go func() {
			slot, _ := reg.Acquire(context.Background(), acme, inflight.Label("forgotten"))
			granted <- slot
		}()
		slottest.WaitWaiters(t, reg, acme, 1)
		go free()
		slottest.WaitWaiters(t, reg, acme, 0)
		slottest.WaitInUse(t, reg, acme, 1)
		<-granted
	})
	require.Len(t, failures, 1)
	require.Regexp(t, `^slottest: 1 not released, 0 waiting\nslot 2 of acme/glm, label "forgotten"`, failures[0])

	require.Empty(t, failuresOf(func(t *fakeT) {
		slot := try(slottest.New(t, inflight.Config{}))
		t.Cleanup(func() { go slot.Release() })
	}))
}

// In a bubble the clock moves no more than it must, and not at all if there is nothing to wait for.
func TestWaitHardlyMovesTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := slottest.New(t, inflight.Config{})
		began := time.Now()
		slot := try(reg)
		slottest.WaitInUse(t, reg, acme, 1)
		require.Zero(t, time.Since(began))
		go slot.Release()
		slottest.WaitInUse(t, reg, acme, 0)
		require.LessOrEqual(t, time.Since(began), time.Nanosecond) // none if the release was as fast
	})
}

// Who imports inflight does not get package testing with it, nor this package.
func TestTestingStaysInTests(t *testing.T) {
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/inflight-go/inflight").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(deps)) {
		require.NotRegexp(t, `^testing(/|$)|/slottest$`, dep)
	}
}

func TestHoldInCleanup(t *testing.T) {
	require.Empty(t, failuresOf(func(t *fakeT) {
		reg := slottest.New(t, inflight.Config{})
		t.Cleanup(func() { slottest.Hold(t, reg, acme, 1)() })
	}))
}

func TestEmptyWithoutRegistryFails(t *testing.T) {
	failures := failuresOf(func(t *fakeT) { slottest.Empty(t, nil) })
	require.Equal(t, []string{"slottest: no registry to check: it is nil"}, failures)
}
