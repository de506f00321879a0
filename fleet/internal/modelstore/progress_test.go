package modelstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/modelstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// Nobody waits for ever, however heavy, among others who always want something.
func TestNobodyWaitsForever(t *testing.T) {
	always := func(weight int) func() int { return func() int { return weight } }
	rnd := rand.New(rand.NewPCG(1, 0))
	mixed := func() int { return 1 + rnd.IntN(16) }
	small := [...]func() int{mixed, mixed, always(1), always(1), always(1), always(1)}
	for _, c := range []struct {
		name    string
		limit   int
		each    int          // how many wait in a process at a time
		weights []func() int // one for each process
		longest time.Duration
	}{
		{"two of 6 in 10", 10, 1, []func() int{always(6), always(6)}, 2 * time.Second},
		{"three of all", 10, 2, []func() int{always(10), always(10), always(10)}, 10 * time.Second},
		{"up to 16 of 24", 24, 4, []func() int{mixed, mixed}, 10 * time.Second},
		{"16 of 24 among small ones", 24, 30, []func() int{always(1), always(16)}, 60 * time.Second},
		{"among many", 24, 10, small[:], 60 * time.Second},
		{"more processes than room", 2, 3, small[2:], 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.limit)
			for i, weight := range c.weights {
				w.workers = append(w.workers, &worker{world: w, id: string(rune('a' + i)), keep: -1, each: c.each, weight: weight})
			}
			w.run(2 * ttl)
			for _, p := range w.workers {
				p.served, p.longest = 0, 0
			}
			w.run(5 * time.Minute)
			for _, p := range w.workers {
				p.endWait()
				t.Logf("%s: %d served, longest wait %v", p.id, p.served, p.longest)
				require.Positive(t, p.served, p.id)
				require.LessOrEqual(t, p.longest, c.longest, p.id)
			}
		})
	}
}

// A world is some processes on one model, in time that passes only here.
type world struct {
	t       *testing.T
	limit   int
	now     time.Time
	model   *modelstore.Store
	workers []*worker
}

func newWorld(t *testing.T, limit int) *world {
	t.Helper()
	w := &world{t: t, limit: limit, now: time.UnixMilli(1_700_000_000_000)}
	w.model = modelstore.New(modelstore.Options{Now: func() time.Time { return w.now }})
	return w
}

func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Millisecond) {
		for _, p := range w.workers {
			p.step()
		}
	}
}

// A worker stands for a process: its requests are served in their order, and what is idle it gives back if that is wanted.
type worker struct {
	*world
	id            string
	each          int
	weight        func() int
	queue         []request
	running       []request
	granted, used int
	keep          int
	tight         bool
	seq           uint64
	denials       int
	retry, renew  time.Time
	idle          time.Time // since when there is something to give back

	served  int
	longest time.Duration
}

type request struct {
	weight int
	at     time.Time // when it came; when it ends once it is served
}

func (p *worker) step() {
	for len(p.queue) < p.each {
		p.queue = append(p.queue, request{p.weight(), p.now})
	}
	running := p.running[:0]
	for _, r := range p.running {
		if r.at.After(p.now) {
			running = append(running, r)
			continue
		}
		p.used -= r.weight
		if p.keep >= 0 {
			p.granted = min(p.granted, max(p.keep, p.used))
		}
	}
	p.running = running
	p.serve()
	wants := len(p.queue) > 0 && !p.now.Before(p.retry)
	switch idle := p.granted - p.used; {
	case wants:
		e := store.Entry{Have: p.granted, Need: -idle, Head: p.queue[0].weight - idle, Slack: p.granted/2 + 1}
		for _, r := range p.queue {
			e.Need += r.weight
		}
		e.Need, e.Head = min(e.Need, p.limit), min(e.Head, p.limit)
		if p.tight {
			e.Slack = 0
		}
		p.call(e)
	case p.tight && idle > 0 && p.now.Sub(p.idle) > 5*time.Millisecond:
		p.granted = p.used
		p.call(store.Entry{Have: p.granted})
	case p.now.After(p.renew):
		p.call(store.Entry{Have: p.granted})
	}
	if p.granted == p.used {
		p.idle = p.now
	}
}

func (p *worker) serve() {
	for len(p.queue) > 0 && p.queue[0].weight <= p.granted-p.used {
		p.endWait()
		p.used += p.queue[0].weight
		p.running = append(p.running, request{p.queue[0].weight, p.now.Add(time.Duration(20+p.served%80) * time.Millisecond)})
		p.queue = p.queue[1:]
		p.served++
	}
}

// endWait takes the wait of the first in the queue into account.
func (p *worker) endWait() {
	if len(p.queue) > 0 {
		p.longest = max(p.longest, p.now.Sub(p.queue[0].at))
	}
}

func (p *worker) call(e store.Entry) {
	p.seq++
	e.Name, e.Limit, e.Seq = "x", p.limit, p.seq
	reply, err := p.model.Lease(p.t.Context(), shard, store.Call{ID: p.id, TTL: ttl, Entries: []store.Entry{e}})
	require.NoError(p.t, err)
	p.renew = p.now.Add(ttl / 3)
	if len(reply.Answers) == 0 {
		return
	}
	a := reply.Answers[0]
	p.granted, p.tight = a.Granted, a.Short || a.Contended || a.Keep >= 0
	if a.Others >= 0 {
		p.keep = a.Keep
	}
	if e.Need == 0 {
		return
	}
	p.retry = p.now
	if p.denials++; !a.Short {
		p.denials = 0
	} else {
		p.retry = p.now.Add(20 * time.Millisecond << min(p.denials-1, 4))
	}
	p.serve()
}
