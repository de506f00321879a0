package modelstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/modelstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// What is granted to those who have a lease is never more than the limit, as long as all say what they have in time and
// nothing is lost. Processes come and go: some leave, some are killed.
func TestGrantsStayWithinLimit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	full := 0
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			f := newSmallFleet(t, rnd)
			for range 400 {
				f.step()
				sum := f.s.Granted(shard, "x", ttl)
				require.LessOrEqual(t, sum, f.limit)
				require.GreaterOrEqual(t, sum, f.believed(), "nobody believes to have more than is written")
				if sum == f.limit {
					full++
				}
			}
		})
	}
	require.NotZero(t, full, "the limit was never reached")
}

type smallProcess struct {
	id      string
	granted int
	seq     uint64
	renewed time.Time
}

type smallFleet struct {
	t         *testing.T
	rnd       *rand.Rand
	s         *modelstore.Store
	limit     int
	processes []*smallProcess
}

func newSmallFleet(t *testing.T, rnd *rand.Rand) *smallFleet {
	t.Helper()
	f := &smallFleet{t: t, rnd: rnd, s: modelstore.New(modelstore.Options{}), limit: rnd.IntN(25)}
	for range 5 {
		f.processes = append(f.processes, f.born())
	}
	return f
}

func (f *smallFleet) born() *smallProcess {
	return &smallProcess{id: fmt.Sprintf("%016x", f.rnd.Uint64())}
}

// step does one thing by one process, and lets a little time pass. Then all whose time has come renew what they have.
func (f *smallFleet) step() {
	f.t.Helper()
	i := f.rnd.IntN(len(f.processes))
	switch p := f.processes[i]; f.rnd.IntN(40) {
	case 0:
		require.NoError(f.t, f.s.Leave(f.t.Context(), shard, p.id))
		f.processes[i] = f.born()
	case 1: // killed
		f.processes[i] = f.born()
	case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14: // gives back
		f.ask(p, store.Entry{Have: f.rnd.IntN(p.granted + 1)})
	default:
		f.ask(p, store.Entry{Have: p.granted, Need: 1 + f.rnd.IntN(5), Slack: f.rnd.IntN(10)})
	}
	time.Sleep(time.Duration(f.rnd.Int64N(int64(ttl / 10))))
	for _, p := range f.processes {
		if !p.renewed.IsZero() && time.Since(p.renewed) > ttl/3 {
			f.ask(p, store.Entry{Have: p.granted})
		}
	}
}

func (f *smallFleet) ask(p *smallProcess, e store.Entry) {
	f.t.Helper()
	p.seq++
	e.Name, e.Limit, e.Seq = "x", f.limit, p.seq
	reply, err := f.s.Lease(context.Background(), shard, store.Call{ID: p.id, TTL: ttl, Entries: []store.Entry{e}})
	require.NoError(f.t, err)
	known := !p.renewed.IsZero()
	require.Equal(f.t, known, reply.Known)
	p.renewed = time.Now()
	if len(reply.Answers) == 1 {
		require.GreaterOrEqual(f.t, reply.Answers[0].Granted, e.Have)
		p.granted = reply.Answers[0].Granted
	}
}

func (f *smallFleet) believed() int {
	sum := 0
	for _, p := range f.processes {
		sum += p.granted
	}
	return sum
}
