package main

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"
)

// inVirtualTime runs f with the clock of testing/synctest, which stands still while anything runs and jumps to the next
// event when nothing can. That clock is to be had in a test only, so f becomes one. A test that has ended would end the
// program with it, so this one never does.
func inVirtualTime(f func()) {
	every := func(_, _ string) (bool, error) { return true, nil }
	done := make(chan struct{})
	test := func(t *testing.T) { //nolint:thelper // this is the test
		synctest.Test(t, func(*testing.T) { f() })
		close(done)
		select {}
	}
	_ = flag.CommandLine.Parse(nil) // or testing would parse the program's flags as its own
	go testing.Main(every, []testing.InternalTest{{Name: "sim", F: test}}, nil, nil)
	<-done
}

// pause lets virtual time pass.
func pause(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // nothing else makes time pass in a simulation
