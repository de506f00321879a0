//go:build unix

package fleettest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// workerVariable is set in the environment of a worker, to its orders.
const workerVariable = "FLEETTEST_WORKER"

type orders struct {
	Log  string
	Proc int
	Keys []string
	Args []string
}

// Main is for TestMain. In the process of the test it runs the tests, and then looks for goroutines left behind. In a
// process that a Referee has spawned it runs the worker, and ends with it.
func Main(m *testing.M, worker func(Env), options ...goleak.Option) {
	text, isWorker := os.LookupEnv(workerVariable)
	if !isWorker {
		goleak.VerifyTestMain(m, options...)
		return
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	log, err := openLog(o.Log)
	if err != nil {
		panic(err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // nothing ever comes but its end
		close(ended)
	}()
	worker(Env{Proc: o.Proc, Args: o.Args, keys: o.Keys, log: log, ended: ended})
	os.Exit(0)
}

// An Env is what a worker knows of the test. Its methods are safe for concurrent use.
type Env struct {
	Proc int      // its place
	Args []string // of Spawn

	keys  []string
	log   *os.File
	ended <-chan struct{}
}

// Enter says that a slot of a key was acquired. Call it after Acquire has returned the slot, and Leave before its release.
func (e Env) Enter(key string) { e.note(entered, key) }

// Leave says that a slot of a key is about to be released.
func (e Env) Leave(key string) { e.note(left, key) }

// Refused says that a slot of a key was not to be had. It is counted, no more.
func (e Env) Refused(key string) { e.note(refused, key) }

// Ended is closed when Process.End asks the worker to return.
func (e Env) Ended() <-chan struct{} { return e.ended }

func (e Env) note(k kind, key string) {
	i := slices.Index(e.keys, key)
	if i < 0 {
		panic(fmt.Sprintf("fleettest: the referee does not know the key %q", key))
	}
	event{kind: k, proc: e.Proc, key: i}.appendTo(e.log)
}
