//go:build unix

// Package fleettest sees from outside whether a fleet of processes keeps its limits: real processes, that can be killed
// and stopped, and a Referee who is told of every slot that they take and give back.
//
//	func TestMain(m *testing.M) { fleettest.Main(m, worker) }
//
//	func worker(env fleettest.Env) {
//		slot, err := fleet.Acquire(ctx, key)
//		...
//		env.Enter("acme")
//		... // work
//		env.Leave("acme")
//		slot.Release()
//	}
//
//	func TestLimit(t *testing.T) {
//		referee := fleettest.New(t, []string{"acme"}, 6)
//		p := referee.Spawn(0, server.Addr())
//		...
//		p.Kill()
//		require.LessOrEqual(t, referee.Peak("acme"), limit)
//	}
//
// # What is counted
//
// The slots in whose time the worker works: from Enter, after the acquire, to Leave, before the release. That is a part of
// the time in which the slot is held, and the parts are in their true order, so who gets a slot that another gave back never
// counts together with it. If the peak is above the limit, so many were at work at once: no alarm is false. The other way
// round, an excess is seen if those who are too many are at work at the same time. One that is over before they have
// begun is not, and nobody ever worked above the limit.
//
// A process that is killed between acquire and Enter, or between Leave and release, has held a slot that the log does not
// know, and it holds nothing from its death on. It can hide only that it was too many itself, in the moment before, with
// no work done. It changes nothing in the count of the others: each of their slots is in the log by itself, there is no
// common number that it could have left wrong. So an excess of the living is seen in full.
//
// A process that is stopped goes on to hold what it holds, and counts. A process that dies counts until the system has
// told the referee of its death, which is a little longer than it really holds. That could give a false alarm only if its
// slots were given to others in that little time. They are not: its lease goes on for the rest of the time to live.
package fleettest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// raceOptions let a race end a worker at once. Else one that is killed later would have kept it to itself.
const raceOptions = "GORACE=halt_on_error=1 atexit_sleep_ms=0"

// A Referee spawns the workers of a test and knows what they hold. Only Spawn must be called by the goroutine of the
// test, as it may end it.
type Referee struct {
	tb   testing.TB
	keys []string
	path string
	log  *os.File

	procs []*Process // by place; nil: never spawned

	mu   sync.Mutex
	book *book
}

// New makes a referee for slots of these keys, and for so many places for processes, from 0. When the test ends, all
// processes are killed; if one has ended before in another way than by Kill or by returning, the test fails.
func New(tb testing.TB, keys []string, procs int) *Referee {
	tb.Helper()
	require.Less(tb, len(keys), most)
	require.Less(tb, procs, most)
	path := filepath.Join(tb.TempDir(), "log")
	file, err := openLog(path)
	require.NoError(tb, err)
	keys = slices.Clone(keys)
	r := &Referee{
		tb: tb, keys: keys, path: path, log: file,
		procs: make([]*Process, procs),
		book:  newBook(file, keys, procs),
	}
	tb.Cleanup(func() {
		r.look(func(*book) int { return 0 }) // for what it may find wrong
		_ = file.Close()
	})
	return r
}

// Spawn starts a worker at a place where none is alive. Its numbers are added to those of its predecessors there.
func (r *Referee) Spawn(proc int, args ...string) *Process {
	r.tb.Helper()
	if before := r.procs[proc]; before != nil {
		require.True(r.tb, before.hasEnded(), "place %d is taken", proc)
	}
	text, err := json.Marshal(orders{Log: r.path, Proc: proc, Keys: r.keys, Args: args})
	require.NoError(r.tb, err)
	self, err := os.Executable()
	require.NoError(r.tb, err)
	cmd := exec.Command(self) //nolint:gosec,noctx // ends with the test
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	if _, set := os.LookupEnv("GORACE"); !set {
		cmd.Env = append(cmd.Env, raceOptions)
	}
	// The system says that a child is gone when the last of its threads is. So no event of it comes after this one.
	p := start(r.tb, cmd, proc, func() { event{kind: buried, proc: proc}.appendTo(r.log) })
	r.procs[proc] = p
	return p
}

// Peak is the most that was ever in use of a key at once, by all processes together, since the last ResetPeaks.
func (r *Referee) Peak(key string) int {
	return r.look(func(b *book) int { return b.peak[r.index(key)] })
}

// ResetPeaks lets the peaks begin anew, at what is in use now. It is for tests of which one part may exceed a limit.
func (r *Referee) ResetPeaks() {
	r.look(func(b *book) int { return copy(b.peak, b.inUse) })
}

// InUse is how much of a key is in use now.
func (r *Referee) InUse(key string) int {
	return r.look(func(b *book) int { return b.inUse[r.index(key)] })
}

// Admitted is how often a slot of a key was acquired by the processes of a place.
func (r *Referee) Admitted(key string, proc int) int {
	return r.look(func(b *book) int { return b.cells[proc].admitted[r.index(key)] })
}

// Refused is how often a slot of a key was not to be had for the processes of a place.
func (r *Referee) Refused(key string, proc int) int {
	return r.look(func(b *book) int { return b.cells[proc].refused[r.index(key)] })
}

// Buried is how many slots, of all keys, ended with the death of a process of a place, and not by Leave.
func (r *Referee) Buried(proc int) int {
	return r.look(func(b *book) int { return b.cells[proc].buried })
}

// look reads the book when it is up to date.
func (r *Referee) look(f func(*book) int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.book.catchUp(); err != nil {
		r.tb.Error(err)
	}
	return f(r.book)
}

func (r *Referee) index(key string) int {
	i := slices.Index(r.keys, key)
	if i < 0 {
		panic(fmt.Sprintf("fleettest: the referee does not know the key %q", key))
	}
	return i
}
