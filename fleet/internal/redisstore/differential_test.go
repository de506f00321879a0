package redisstore_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/modelstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

var (
	lasting = flag.Duration("differential", 0, "how long the differential test goes on; 0: for a few sequences")
	seeded  = flag.Uint64("seed", 0, "the seed of the first sequence of the differential test; 0: random")
)

// The scripts and the model of them must answer alike whatever happens: time passes, calls come late or again, leases end
// and data are lost.
func TestDifferential(t *testing.T) {
	const sequences, steps = 20, 300
	seed := *seeded
	if seed == 0 {
		seed = rand.Uint64()
	}
	e := newEngine(t)
	begin := time.Now()
	for i := 0; i < sequences || time.Since(begin) < *lasting; i++ {
		e.server.FlushAll()
		p := newPair(t, e, seed+uint64(i))
		for range steps {
			p.step()
		}
	}
}

// A pair is the scripts and the model under the same random sequence of calls.
type pair struct {
	t       *testing.T
	scripts *engine
	model   *modelstore.Store
	rnd     *rand.Rand
	ids     []string
	names   []string
	seq     uint64
	ends    map[string]int64 // what each process was last told
	sent    []store.Call
	log     []string // what was done, for the message of a failure
}

func newPair(t *testing.T, scripts *engine, seed uint64) *pair {
	t.Helper()
	p := &pair{t: t, scripts: scripts, rnd: rand.New(rand.NewPCG(seed, 0)), names: []string{"a", "b"}}
	p.ends = make(map[string]int64)
	p.model = modelstore.New(modelstore.Options{Now: func() time.Time { return scripts.clock.now }})
	for range 2 + p.rnd.IntN(4) {
		p.ids = append(p.ids, fmt.Sprintf("%016x", p.rnd.Uint64()))
	}
	p.note("-seed %d", seed)
	return p
}

func (p *pair) note(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

func (p *pair) step() {
	p.t.Helper()
	switch dice := p.rnd.IntN(100); {
	case dice < 50:
		p.lease(p.fresh())
	case dice < 60 && len(p.sent) > 0: // again or late: mostly one of the last, sometimes one from long ago
		back := min(len(p.sent), 1+p.rnd.IntN(1+p.rnd.IntN(30)))
		p.lease(p.sent[len(p.sent)-back])
	case dice < 62:
		id := p.pick(p.ids)
		p.note("leave %s", id)
		p.scripts.leave(id)
		require.NoError(p.t, p.model.Leave(p.t.Context(), shard, id))
	case dice < 63:
		p.note("flush")
		p.scripts.flush()
		p.model.Flush()
	case dice < 64:
		back := []time.Duration{time.Millisecond, store.Window, ttl, 3 * ttl}[p.rnd.IntN(4)]
		p.note("set back %v", back)
		require.NoError(p.t, p.model.Leave(p.t.Context(), shard, "nobody")) // what has expired by now does not come back
		p.scripts.setBack(back)
	case dice < 99:
		p.pass([]time.Duration{
			time.Millisecond, 10 * time.Millisecond, store.Window - time.Millisecond, store.Window, time.Second, ttl / 10, ttl / 3,
		}[p.rnd.IntN(7)])
	default:
		p.pass([]time.Duration{
			ttl - time.Millisecond, ttl, (store.Memory - 1) * ttl, store.Memory * ttl, store.Idle, 2 * store.Idle,
		}[p.rnd.IntN(6)])
	}
}

func (p *pair) pass(d time.Duration) {
	p.note("pass %v", d)
	p.scripts.step(d)
}

func (p *pair) pick(of []string) string { return of[p.rnd.IntN(len(of))] }

// fresh returns a new call. Its entries need not make sense: that is up to the processes.
func (p *pair) fresh() store.Call {
	c := store.Call{ID: p.pick(p.ids), TTL: ttl, Census: p.rnd.IntN(4) == 0}
	if p.rnd.IntN(10) == 0 {
		c.TTL = ttl / 3
	}
	c.More = p.rnd.IntN(8) == 0
	if p.rnd.IntN(4) > 0 {
		c.Ends = p.ends[c.ID]
	}
	for range p.rnd.IntN(4) {
		p.seq++
		e := store.Entry{Name: p.pick(p.names), Limit: 10, Seq: p.seq, Have: p.rnd.IntN(4)}
		switch p.rnd.IntN(4) {
		case 0:
			e.Limit, e.Floor = p.rnd.IntN(12), p.rnd.IntN(5)
		case 1, 2:
			e.Need, e.Slack = 1+p.rnd.IntN(6), p.rnd.IntN(20)
			e.Head = p.rnd.IntN(e.Need + 1)
		}
		c.Entries = append(c.Entries, e)
	}
	p.sent = append(p.sent, c)
	return c
}

func (p *pair) lease(c store.Call) {
	p.t.Helper()
	p.note("lease %+v", c)
	got, err := p.scripts.Lease(p.t.Context(), shard, c)
	require.NoError(p.t, err, p.log)
	want, err := p.model.Lease(p.t.Context(), shard, c)
	require.NoError(p.t, err)
	require.Equal(p.t, want, got, "%q", p.log)
	p.ends[c.ID] = got.Ends
}
