package fleet

import (
	"math"
	"sync"
	"time"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// Stats is a snapshot of a Fleet. It holds plain values only.
type Stats struct {
	ID        string // of this process in the engine, new with each start
	Processes int    // live processes of the fleet, this one too; 0 before the engine was reached

	// Now.
	Leases   int    // limits of which this process leases a part or did not long ago
	Granted  [4]int // what is granted to this process, by Scope, over all limits
	Shards   int
	Fallback int       // shards whose leases have lapsed and whose engine cannot be reached: Config.Fallback is in force there
	Learning int       // shards whose data were lost not long ago: nothing more is granted there
	LastSync time.Time // when the shard that is worst off was last renewed; zero if one never was

	// Since New.
	Calls   uint64 // to the engine
	Failed  uint64 // calls that failed
	Entries uint64 // limits that were spoken of in calls
	Denied  uint64 // times that the engine had not enough of a limit
	Lost    uint64 // times that a shard's data were found lost

	Latency inflight.Histogram // of calls, failed ones too

	// MaxmemoryPolicy is what the engine does when its memory is full. It should be noeviction. Empty if it does not tell.
	MaxmemoryPolicy string
}

// Stats returns a snapshot. Safe for concurrent use.
func (f *Fleet) Stats() Stats {
	s := Stats{ID: f.id, Shards: len(f.shards)}
	s.Leases, s.Granted = f.leases.Totals()
	t := &f.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.shards {
		shard := &t.shards[i]
		s.Processes = max(s.Processes, shard.live)
		if shard.fallen {
			s.Fallback++
		}
		if shard.learning {
			s.Learning++
		}
		if i == 0 || shard.renewed.Before(s.LastSync) {
			s.LastSync = shard.renewed
		}
	}
	s.Calls, s.Failed, s.Entries, s.Denied, s.Lost = t.calls, t.failed, t.entries, t.denied, t.lost
	s.Latency = t.latency.export()
	s.MaxmemoryPolicy = t.policy
	return s
}

// tally is what a fleet counts for Stats.
type tally struct {
	mu sync.Mutex // guards what follows

	calls, failed, entries, denied, lost uint64
	latency                              histogram
	policy                               string
	shards                               []shardTally
}

type shardTally struct {
	renewed          time.Time
	live             int
	learning, fallen bool
}

func (t *tally) called(took time.Duration, entries int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	t.entries += uint64(entries) //nolint:gosec // not negative
	if err != nil {
		t.failed++
	}
	t.latency.observe(took)
}

func (t *tally) renewed(shard int, at time.Time, reply *store.Reply, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shards[shard] = shardTally{renewed: at, live: reply.Live, learning: reply.Learning > 0}
	for _, a := range reply.Answers {
		if a.Short {
			t.denied++
		}
	}
	if lost {
		t.lost++
	}
}

func (t *tally) fell(shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shards[shard].fallen = true
}

// The bounds of a histogram of calls: powers of two, from 2^-13 s (an eighth of a millisecond) to 2 s.
const (
	lowestBound = -13
	bounds      = 15
)

type histogram struct {
	counts [bounds + 1]uint64
	sum    time.Duration
}

func (h *histogram) observe(d time.Duration) {
	h.sum += d
	i := 0
	for i < bounds && d.Seconds() > math.Ldexp(1, lowestBound+i) {
		i++
	}
	h.counts[i]++
}

func (h *histogram) export() inflight.Histogram {
	e := inflight.Histogram{Bounds: make([]float64, bounds), Counts: append([]uint64(nil), h.counts[:]...), Sum: h.sum.Seconds()}
	for i := range e.Bounds {
		e.Bounds[i] = math.Ldexp(1, lowestBound+i)
	}
	return e
}
