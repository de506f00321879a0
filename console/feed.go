package console

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inflight-go/inflight"
)

// historyLength is how many samples the charts show: five minutes of seconds.
const historyLength = 300

// share is the part of the time that may go into looking at the registry: one in so many.
const share = 10

// A feed looks at a registry on behalf of all who watch it. It has no goroutine of its own: the first watcher that
// wants a newer snapshot than there is takes it, and the others get the same one.
type feed struct {
	registry *inflight.Registry
	interval time.Duration
	encode   func(*snapshot, *sample, filter) []byte
	cost     atomic.Int64 // what the last snapshot took, in nanoseconds

	mu       sync.Mutex
	watchers int
	latest   *update  // nil while nobody watches
	samples  []sample // oldest first, at most historyLength
}

// A sample is what the charts show of one snapshot.
type sample struct {
	At       time.Time `json:"at"`
	InUse    int       `json:"in_use"`
	Waiters  int       `json:"waiters"`
	Admitted *float64  `json:"admitted_per_second"` // since the sample before; null after a gap
	Rejected *float64  `json:"rejected_per_second"`

	admitted, rejected uint64 // totals
}

// An update is a snapshot shared by its watchers.
type update struct {
	asked time.Time
	take  func() (*snapshot, *sample) // no sample if there is a newer one

	mu      sync.Mutex
	encoded map[filter]func() []byte
}

func newFeed(reg *inflight.Registry, interval time.Duration, encode func(*snapshot, *sample, filter) []byte) *feed {
	return &feed{registry: reg, interval: interval, encode: encode}
}

// watch says that somebody watches, until leave is called.
func (f *feed) watch() (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.watchers--; f.watchers == 0 {
			f.latest = nil // it may be large
		}
	}
}

// since returns an update that was asked for at t or later.
func (f *feed) since(t time.Time) *update {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.latest == nil || f.latest.asked.Before(t) {
		f.latest = &update{asked: time.Now(), take: sync.OnceValues(f.take), encoded: make(map[filter]func() []byte)}
	}
	return f.latest
}

// period is the time between updates.
func (f *feed) period() time.Duration { return max(f.interval, share*time.Duration(f.cost.Load())) }

// history returns the samples so far.
func (f *feed) history() []sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sample{}, f.samples...) // never nil, for JSON
}

func (f *feed) take() (*snapshot, *sample) {
	start := time.Now()
	s := look(f.registry, maxShown)
	newest := f.record(s)
	f.cost.Store(int64(time.Since(start)))
	return s, newest
}

// record adds a snapshot to the history and returns its sample; nil if another look, which began later, was faster.
func (f *feed) record(s *snapshot) *sample {
	next := sample{
		At: s.began, InUse: s.stats.InUse, Waiters: s.stats.Waiters,
		admitted: s.stats.Admitted, rejected: s.stats.RejectedTotal(),
	}
	period := f.period()
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.samples); n > 0 {
		last := f.samples[n-1]
		passed := next.At.Sub(last.At)
		if passed <= 0 || next.admitted < last.admitted || next.rejected < last.rejected {
			return nil
		}
		if passed < 3*period {
			next.Admitted, next.Rejected = rate(last.admitted, next.admitted, passed), rate(last.rejected, next.rejected, passed)
		}
	}
	if len(f.samples) == historyLength {
		f.samples = slices.Delete(f.samples, 0, 1)
	}
	f.samples = append(f.samples, next)
	return &next
}

func rate(before, after uint64, passed time.Duration) *float64 {
	perSecond := math.Round(float64(after-before)/passed.Seconds()*100) / 100
	return &perSecond
}

// state returns the update as JSON, for those who look through this filter.
func (f *feed) state(u *update, by filter) []byte {
	u.mu.Lock()
	encoded := u.encoded[by]
	if encoded == nil {
		encoded = sync.OnceValue(func() []byte {
			s, newest := u.take()
			start := time.Now()
			defer func() { f.cost.Add(int64(time.Since(start))) }()
			return f.encode(s, newest, by)
		})
		u.encoded[by] = encoded
	}
	u.mu.Unlock()
	return encoded()
}
