package modelcheck_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

var histories = flag.Int("histories", 1000, "how many histories to record and check")

// Several goroutines take, release and evict slots at once and look at the counts. Whatever they saw, there must be an
// order of their calls, each somewhere between its begin and its end, in which a registry used by one goroutine would
// have answered the same.
func TestHistories(t *testing.T) {
	n := *histories
	if testing.Short() {
		n /= 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range n {
		h := record(t, rand.NewPCG(seed, uint64(i)))
		switch porcupine.CheckOperationsTimeout(sequential, h, time.Minute) {
		case porcupine.Ok:
		case porcupine.Illegal:
			require.Fail(t, "no order explains the history", "number %d:\n%s", i, describe(h))
		case porcupine.Unknown:
			t.Logf("history %d takes too long to check", i)
		}
	}
}

const (
	clients = 4
	calls   = 10 // of each client
)

// narrow limits of all four scopes: each refuses now and then.
var narrow = inflight.Limits{Key: 2, Org: 3, Model: 3, Total: 4}

// record lets the clients loose on a registry and writes down what they did.
func record(t *testing.T, src rand.Source) []porcupine.Operation {
	t.Helper()
	r, err := inflight.New(inflight.Config{
		Limits: func(inflight.Key) inflight.Limits {
			runtime.Gosched() // in the midst of an acquire
			return narrow
		},
		SweepInterval: -1,
	})
	require.NoError(t, err)
	run := &recording{reg: r}
	rnd := rand.New(src)
	var all sync.WaitGroup
	for id := range clients {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		all.Go(func() {
			for range calls {
				run.call(id, rnd)
			}
		})
	}
	all.Wait()
	return run.ops
}

type recording struct {
	reg   *inflight.Registry
	clock atomic.Int64 // ticks at each begin and end of a call, so no two are at the same time

	mu    sync.Mutex
	ops   []porcupine.Operation
	slots []*inflight.Slot // all that were handed out: anybody may release them, at any time, again and again
}

// A call is what a client did. It is the input of an operation.
type call struct {
	kind   string // "try", "release", "evict", "in use", "stats"
	keys   []inflight.Key
	weight int
	id     uint64 // of the slot to release or evict
}

// An answer is what came of it, the output of the operation.
type answer struct {
	id      uint64 // of the slot that was handed out; 0 for a refusal
	refused inflight.LimitError
	evicted bool
	inUse   int
	holders int
	keys    int
}

func (run *recording) call(client int, rnd *rand.Rand) {
	c := call{kind: []string{"try", "try", "try", "release", "release", "evict", "in use", "stats"}[rnd.IntN(8)]}
	var slot *inflight.Slot
	switch c.kind {
	case "try", "in use":
		c.weight = []int{1, 1, 1, 0, 2}[rnd.IntN(5)]
		for range 1 + rnd.IntN(2) {
			if k := keys[rnd.IntN(len(keys))]; !slices.Contains(c.keys, k) {
				c.keys = append(c.keys, k)
			}
		}
	case "release", "evict":
		run.mu.Lock()
		if n := len(run.slots); n > 0 {
			slot = run.slots[n-1-rnd.IntN(min(n, 5))]
		}
		run.mu.Unlock()
		if slot == nil {
			return
		}
		c.id = slot.ID()
	}

	begin := run.clock.Add(1)
	a, granted := run.do(c, slot)
	end := run.clock.Add(1)

	run.mu.Lock()
	defer run.mu.Unlock()
	run.ops = append(run.ops, porcupine.Operation{ClientId: client, Input: c, Call: begin, Output: a, Return: end})
	if granted != nil {
		run.slots = append(run.slots, granted)
	}
}

func (run *recording) do(c call, slot *inflight.Slot) (answer, *inflight.Slot) {
	switch c.kind {
	case "try":
		s, err := run.reg.TryAcquire(c.keys[0], inflight.Also(c.keys[1:]...), inflight.Weight(c.weight))
		var e *inflight.LimitError
		if errors.As(err, &e) {
			return answer{refused: inflight.LimitError{Key: e.Key, Scope: e.Scope, InUse: e.InUse}}, nil
		}
		return answer{id: s.ID()}, s
	case "release":
		slot.Release()
	case "evict":
		return answer{evicted: run.reg.Evict(c.id)}, nil
	case "in use":
		return answer{inUse: run.reg.InUse(c.keys[0])}, nil
	case "stats":
		s := run.reg.Stats()
		return answer{inUse: s.InUse, holders: s.Holders, keys: s.Keys}, nil
	}
	return answer{}, nil
}

func describe(h []porcupine.Operation) string {
	var text strings.Builder
	for _, op := range h {
		fmt.Fprintf(&text, "%3d-%3d client %d: %s\n", op.Call, op.Return, op.ClientId, sequential.DescribeOperation(op.Input, op.Output))
	}
	return text.String()
}
