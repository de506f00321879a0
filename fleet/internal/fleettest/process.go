//go:build unix

package fleettest

import (
	"errors"
	"io"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/fleettest/process"
)

// A Process is a worker that was spawned. What it writes to its standard output and error is in the log of the test, if
// that fails.
type Process struct {
	tb     testing.TB
	proc   *process.Process
	stdin  io.Closer // its end asks the worker to return
	killed atomic.Bool
}

func start(tb testing.TB, cmd *exec.Cmd, place int, bury func()) *Process {
	tb.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(tb, err)
	proc, err := process.Start(tb, cmd, bury)
	require.NoError(tb, err)
	p := &Process{tb: tb, proc: proc, stdin: stdin}
	tb.Cleanup(func() {
		p.Kill()
		if err := p.Wait(); err != nil {
			tb.Errorf("fleettest: process %d: %v", place, err)
		}
		if tb.Failed() {
			tb.Logf("output of process %d:\n%s", place, proc.Output())
		}
	})
	return p
}

// Kill ends the process by SIGKILL. When it returns, nothing counts as held by it.
func (p *Process) Kill() {
	if !p.hasEnded() { // else something else has killed it
		p.killed.Store(true)
	}
	p.proc.Kill()
}

// Stop halts the process by SIGSTOP. What it holds, it goes on to hold.
func (p *Process) Stop() {
	p.tb.Helper()
	require.NoError(p.tb, p.proc.Stop())
}

// Continue ends a Stop.
func (p *Process) Continue() {
	p.tb.Helper()
	require.NoError(p.tb, p.proc.Continue())
}

// End asks the worker to return, by Env.Ended, and waits until it has, as Wait does.
func (p *Process) End() error {
	_ = p.stdin.Close() // it may have been closed before
	return p.Wait()
}

// Wait waits until the process has ended. It is an error if it did not end by Kill, nor by returning from the worker.
func (p *Process) Wait() error {
	err := p.proc.Wait()
	var exit *exec.ExitError
	if p.killed.Load() && errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return err
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.proc.Ended():
		return true
	default:
		return false
	}
}
