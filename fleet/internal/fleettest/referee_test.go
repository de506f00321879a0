//go:build unix

package fleettest_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/fleettest"
)

const (
	acme  = "acme"
	other = "other"
	soon  = 15 * time.Second
)

func TestMain(m *testing.M) { fleettest.Main(m, worker) }

// worker does what the first argument says, and the second is a number.
func worker(env fleettest.Env) {
	n, err := strconv.Atoi(env.Args[1])
	if err != nil {
		panic(err)
	}
	switch env.Args[0] {
	case "hold": // n slots, until the end
		for range n {
			env.Enter(acme)
		}
		<-env.Ended()
		for range n {
			env.Leave(acme)
		}
	case "keep": // as hold, and does not give them back
		for range n {
			env.Enter(acme)
		}
		<-env.Ended()
	case "churn": // n goroutines, each with one slot now and then, until killed or ended
		var all sync.WaitGroup
		for range n {
			all.Go(func() { churn(env) })
		}
		all.Wait()
	case "try": // n times in vain, and once not
		for range n {
			env.Refused(other)
		}
		env.Enter(other)
		env.Leave(other)
	case "exit": // with this code
		fmt.Fprintln(os.Stderr, "famous last words")
		os.Exit(n)
	case "die": // of this signal
		_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
		select {}
	case "race": // with itself
		race(n)
		<-env.Ended()
	case "leave":
		env.Leave(acme)
	}
}

func churn(env fleettest.Env) {
	for {
		select {
		case <-env.Ended():
			return
		default:
			env.Enter(acme)
			env.Leave(acme)
		}
	}
}

func holds(t *testing.T, r *fleettest.Referee, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.InUse(acme) == n }, soon, time.Millisecond, "want %d in use", n)
}

func TestRefereeSeesTheExactPeak(t *testing.T) {
	r := fleettest.New(t, []string{other, acme}, 3)
	var procs []*fleettest.Process
	for i, n := range []string{"200", "3", "24"} {
		procs = append(procs, r.Spawn(i, "hold", n))
	}
	holds(t, r, 227)
	for _, p := range procs {
		require.NoError(t, p.End())
	}
	require.Zero(t, r.InUse(acme))
	require.Equal(t, 227, r.Peak(acme))
	require.Equal(t, 24, r.Admitted(acme, 2))
	require.Zero(t, r.Buried(0))
	require.Zero(t, r.Peak(other))

	r.ResetPeaks()
	require.Zero(t, r.Peak(acme))
	again := r.Spawn(1, "hold", "2")
	holds(t, r, 2)
	r.ResetPeaks()
	require.Equal(t, 2, r.Peak(acme), "of what is still in use")
	require.NoError(t, again.End())
	require.Equal(t, 5, r.Admitted(acme, 1), "of both who had the place")
}

func TestRefereeBuriesTheDead(t *testing.T) {
	r := fleettest.New(t, []string{acme}, 2)
	killed, unclean := r.Spawn(0, "hold", "5"), r.Spawn(1, "keep", "2")
	holds(t, r, 7)
	killed.Kill()
	require.NoError(t, killed.Wait())
	require.Equal(t, 2, r.InUse(acme))
	require.Equal(t, 5, r.Buried(0))

	require.NoError(t, unclean.End())
	require.Zero(t, r.InUse(acme))
	require.Equal(t, 2, r.Buried(1))
	require.Equal(t, 7, r.Peak(acme), "the dead counted while they lived")
}

func TestRefereeCountsTheStopped(t *testing.T) {
	r := fleettest.New(t, []string{acme}, 2)
	p, q := r.Spawn(0, "hold", "3"), r.Spawn(1, "churn", "4")
	require.Eventually(t, func() bool { return r.Admitted(acme, 1) > 1000 && r.Admitted(acme, 0) == 3 }, soon, time.Millisecond)
	p.Stop()
	q.Stop()
	held, admitted := r.InUse(acme), r.Admitted(acme, 1)
	require.GreaterOrEqual(t, held, 3)
	require.LessOrEqual(t, held, 7)

	late := time.NewTimer(50 * time.Millisecond)
	for waiting := true; waiting; {
		select {
		case <-late.C:
			waiting = false
		default:
			require.Equal(t, held, r.InUse(acme), "no event comes after Stop")
			require.Equal(t, admitted, r.Admitted(acme, 1))
		}
	}
	q.Continue()
	require.Eventually(t, func() bool { return r.Admitted(acme, 1) > admitted }, soon, time.Millisecond)
	p.Kill() // stopped as it is
	require.Equal(t, 3, r.Buried(0))
	require.NoError(t, q.End())
	require.Zero(t, r.InUse(acme))
}

// Processes that are killed at any moment must leave a count that neither hides what the others hold, nor adds to it.
func TestRefereeCountsOnAfterDeathsAtAnyMoment(t *testing.T) {
	r := fleettest.New(t, []string{acme}, 4)
	r.Spawn(0, "hold", "10")
	holds(t, r, 10)
	for range 5 {
		var procs []*fleettest.Process
		for i := 1; i < 4; i++ {
			procs = append(procs, r.Spawn(i, "churn", "5"))
		}
		for i, p := range procs {
			before := r.Admitted(acme, i+1)
			require.Eventually(t, func() bool { return r.Admitted(acme, i+1) > before+100 }, soon, time.Millisecond)
			p.Kill()
		}
		require.Equal(t, 10, r.InUse(acme))
	}
	require.Greater(t, r.Peak(acme), 10)
	require.LessOrEqual(t, r.Peak(acme), 10+3*5)
}

func TestRefereeCountsRefusals(t *testing.T) {
	r := fleettest.New(t, []string{acme, other}, 2)
	require.NoError(t, r.Spawn(1, "try", "7").Wait())
	require.Equal(t, 7, r.Refused(other, 1))
	require.Equal(t, 1, r.Admitted(other, 1))
	require.Equal(t, 1, r.Peak(other))
	require.Zero(t, r.Refused(other, 0))
	require.Zero(t, r.Refused(acme, 1))
	require.Zero(t, r.Peak(acme))
}
