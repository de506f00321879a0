//go:build unix

package fleettest_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/fleettest"
)

// A failing is a test that may fail without the one around it.
type failing struct {
	testing.TB
	cleanups []func()
	failures []string
	log      []string
}

func (f *failing) Helper()           {}
func (f *failing) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *failing) Failed() bool      { return len(f.failures) > 0 }
func (f *failing) Error(args ...any) { f.failures = append(f.failures, fmt.Sprint(args...)) }
func (f *failing) Logf(s string, args ...any) {
	f.log = append(f.log, fmt.Sprintf(s, args...))
}

func (f *failing) Errorf(s string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(s, args...))
}
func (f *failing) FailNow() { runtime.Goexit() }

// run runs a test, and its cleanups when it has ended.
func (f *failing) run(test func()) {
	var ended sync.WaitGroup
	ended.Go(func() {
		defer func() {
			for _, cleanup := range slices.Backward(f.cleanups) {
				cleanup()
			}
		}()
		test()
	})
	ended.Wait()
}

func TestTestFailsWithItsWorkers(t *testing.T) {
	for name, tc := range map[string]struct {
		test func(*fleettest.Referee)
		want string // "": no failure
	}{
		"none":      {test: func(*fleettest.Referee) {}},
		"one lives": {test: func(r *fleettest.Referee) { r.Spawn(0, "hold", "1") }},
		"one was killed": {
			test: func(r *fleettest.Referee) { r.Spawn(0, "hold", "1").Kill() },
		},
		"one exited": {
			test: func(r *fleettest.Referee) { _ = r.Spawn(0, "exit", "3").Wait() },
			want: "process 0: exit status 3",
		},
		"one exited before it was killed": {
			test: func(r *fleettest.Referee) {
				p := r.Spawn(0, "exit", "3")
				_ = p.Wait()
				p.Kill()
			},
			want: "process 0: exit status 3",
		},
		"one was killed by somebody else": {
			test: func(r *fleettest.Referee) { _ = r.Spawn(0, "die", "9").Wait() },
			want: "process 0: signal: killed",
		},
		"one died otherwise before it was killed": {
			test: func(r *fleettest.Referee) {
				p := r.Spawn(0, "die", "15")
				_ = p.Wait()
				p.Kill()
			},
			want: "process 0: signal: terminated",
		},
		"one left what it had not entered": {
			test: func(r *fleettest.Referee) { _ = r.Spawn(0, "leave", "1").Wait() },
			want: `process 0 left "acme" more often than it entered`,
		},
		"the place is taken": {
			test: func(r *fleettest.Referee) { r.Spawn(0, "hold", "1"); r.Spawn(0, "hold", "1") },
			want: "place 0 is taken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{TB: t}
			f.run(func() { tc.test(fleettest.New(f, []string{acme}, 1)) })
			if tc.want == "" {
				require.Empty(t, f.failures)
				return
			}
			require.Len(t, f.failures, 1)
			require.Contains(t, f.failures[0], tc.want)
		})
	}
}

func TestLastWordsAreLogged(t *testing.T) {
	f := &failing{TB: t}
	f.run(func() { _ = fleettest.New(f, []string{acme}, 1).Spawn(0, "exit", "1").Wait() })
	require.Contains(t, fmt.Sprint(f.log), "famous last words")
}

// A race ends a worker at once: the worker would wait for ever, to be killed by a test that has seen nothing.
func TestRaceEndsAWorker(t *testing.T) {
	if !raceDetector() {
		t.Skip("needs -race")
	}
	f := &failing{TB: t}
	f.run(func() { _ = fleettest.New(f, []string{acme}, 1).Spawn(0, "race", "10000").Wait() })
	require.Len(t, f.failures, 1)
	require.Contains(t, f.failures[0], "exit status 66")
	require.Contains(t, fmt.Sprint(f.log), "DATA RACE")
}

// race counts in two goroutines without a lock.
func race(n int) {
	var all sync.WaitGroup
	count := 0
	for range 2 {
		all.Go(func() {
			for range n {
				count++
			}
		})
	}
	all.Wait()
}

// raceDetector says whether the test was built with -race.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
