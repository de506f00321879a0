//go:build unix

// Package process runs programs for tests. A program ends with the test that started it, and on Linux also with the test
// process, however that ends: a test that is killed, or that panics after its deadline, leaves nothing behind.
package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// soon is how long the system may take for what it does at once, on a slow machine.
const soon = 15 * time.Second

// A Process is a program that was started. Its methods are safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	output string // the path of a file
	ended  chan struct{}
	err    error // of Wait; set when ended is closed
}

// Start starts a program whose output, unless cmd says otherwise, is kept for Output. It is killed when the test ends.
// The functions in buried are called when it has ended, before Ended and Wait say so.
func Start(tb testing.TB, cmd *exec.Cmd, buried ...func()) (*Process, error) {
	tb.Helper()
	out, err := os.Create(filepath.Join(tb.TempDir(), "output"))
	if err != nil {
		return nil, err
	}
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = out
	}
	cmd.SysProcAttr = dieWithParent()
	p := &Process{cmd: cmd, output: out.Name(), ended: make(chan struct{})}

	started := make(chan error, 1)
	go func() {
		// Linux ends a child with the thread that started it. So the thread stays with this goroutine until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = out.Close() // the child has its own
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		for _, f := range buried {
			f()
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	tb.Cleanup(p.Kill)
	return p, nil
}

// PID is the number that the system knows the process by.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the process to end. The error is that of exec.Cmd.Wait.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// Output returns what the process wrote until now.
func (p *Process) Output() string {
	b, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Kill ends the process by SIGKILL, also if it is stopped, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it has ended already: all the better
	<-p.ended
}

// Stop halts the process by SIGSTOP. It returns when each of its threads has halted (where that can be found out: on
// Linux), so that nothing it does comes later.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if stopped, err := halted(p.PID()); stopped || err != nil {
			return err
		}
		select {
		case <-p.ended:
			return os.ErrProcessDone
		case <-deadline.C:
			return errors.New("process: it was sent SIGSTOP and runs on")
		case <-tick.C:
		}
	}
}

// Continue lets a stopped process run on.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
