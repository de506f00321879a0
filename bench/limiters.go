package main

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/inflight-go/inflight"
	"github.com/jellydator/ttlcache/v3"
	"golang.org/x/sync/semaphore"
)

// A contender is a way to limit what is in flight.
type contender struct {
	name string
	buys buys
	make func(limit int) limiter
}

// A limiter is an instance of a contender, for one key.
type limiter struct {
	take    func(label string) (release func(), ok bool) // for what is done once and for tests; a closure costs
	cycle   func(n int)                                  // takes a slot and gives it back, n times
	holders func() []string                              // the labels of who holds; nil if that is not known
}

var key = inflight.Key{Org: "acme", Model: "glm"}

// contenders are in the order of the table.
var contenders = []contender{
	{name: liveKey, buys: buys{holder: yes, double: yes}, make: newInflight},
	{name: "x/sync semaphore", buys: buys{holder: no, double: no}, make: newSemaphore},
	{name: "x/sync semaphore per key", buys: buys{holder: no, double: no}, make: newSemaphores},
	{name: "channel per key", buys: buys{holder: no, double: no}, make: newChannels},
	{name: "failsafe-go bulkhead", buys: buys{holder: no, double: no}, make: newBulkhead},
	{name: livePort, buys: buys{holder: yes, double: yes}, make: newMapOfMaps},
	{name: "counter in a TTL cache", buys: buys{holder: no, double: no}, make: newTTLCounter},
}

func newInflight(limit int) limiter {
	reg := newRegistry(inflight.Limits{Key: limit})
	return limiter{
		take: func(label string) (func(), bool) {
			slot, err := reg.TryAcquire(key, inflight.Label(label))
			return slot.Release, err == nil
		},
		cycle: func(n int) { cycle(reg, key, n) },
		holders: func() (labels []string) {
			for _, info := range reg.Slots(0) {
				labels = append(labels, info.Label)
			}
			return labels
		},
	}
}

func newSemaphore(limit int) limiter {
	s := semaphore.NewWeighted(int64(limit))
	return limiter{
		take: func(string) (func(), bool) { return func() { s.Release(1) }, s.TryAcquire(1) },
		cycle: func(n int) {
			for range n {
				admitted(s.TryAcquire(1))
				s.Release(1)
			}
		},
	}
}

// perKey is a limiter for each key, made when it is first asked for. It stays, as nobody counts who uses it.
type perKey[T any] struct {
	create func() T

	mu    sync.Mutex
	byKey map[inflight.Key]T
}

func newPerKey[T any](create func() T) *perKey[T] {
	return &perKey[T]{create: create, byKey: map[inflight.Key]T{}}
}

func (p *perKey[T]) get(k inflight.Key) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.byKey[k]
	if !ok {
		found = p.create()
		p.byKey[k] = found
	}
	return found
}

func newSemaphores(limit int) limiter {
	all := newPerKey(func() *semaphore.Weighted { return semaphore.NewWeighted(int64(limit)) })
	return limiter{
		take: func(string) (func(), bool) {
			s := all.get(key)
			return func() { s.Release(1) }, s.TryAcquire(1)
		},
		cycle: func(n int) {
			for range n {
				s := all.get(key)
				admitted(s.TryAcquire(1))
				s.Release(1)
			}
		},
	}
}

func newChannels(limit int) limiter {
	all := newPerKey(func() chan struct{} { return make(chan struct{}, limit) })
	try := func(c chan struct{}) bool {
		select {
		case c <- struct{}{}:
			return true
		default:
			return false
		}
	}
	return limiter{
		take: func(string) (func(), bool) {
			c := all.get(key)
			return func() { <-c }, try(c)
		},
		cycle: func(n int) {
			for range n {
				c := all.get(key)
				admitted(try(c))
				<-c
			}
		},
	}
}

func newBulkhead(limit int) limiter {
	b := bulkhead.New[any](uint(limit))
	return limiter{
		take: func(string) (func(), bool) { return b.ReleasePermit, b.TryAcquirePermit() },
		cycle: func(n int) {
			for range n {
				admitted(b.TryAcquirePermit())
				b.ReleasePermit()
			}
		},
	}
}

// mapOfMaps is the plain way to know who holds: for each key with a holder, a map of its holders by their ids. It does the
// floor's work and no more: it reads the clock at both ends and hands out a handle.
type mapOfMaps struct {
	limit int

	mu    sync.Mutex
	last  uint64
	held  time.Duration // by all that were released
	byKey map[inflight.Key]map[uint64]*holder
}

type holder struct {
	key   inflight.Key
	id    uint64
	label string
	since time.Time
}

func (m *mapOfMaps) tryAcquire(k inflight.Key, label string) (*holder, bool) {
	h := &holder{key: k, label: label, since: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.byKey[k]
	if len(held) >= m.limit {
		return nil, false
	}
	if held == nil {
		held = map[uint64]*holder{}
		m.byKey[k] = held
	}
	m.last++
	h.id = m.last
	held[h.id] = h
	return h, true
}

func (m *mapOfMaps) release(h *holder) {
	took := time.Since(h.since)
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.byKey[h.key]
	if _, ok := held[h.id]; !ok {
		return
	}
	m.held += took
	delete(held, h.id)
	if len(held) == 0 {
		delete(m.byKey, h.key)
	}
}

func newMapOfMaps(limit int) limiter {
	m := &mapOfMaps{limit: limit, byKey: map[inflight.Key]map[uint64]*holder{}}
	return limiter{
		take: func(label string) (func(), bool) {
			h, ok := m.tryAcquire(key, label)
			return func() { m.release(h) }, ok
		},
		cycle: func(n int) {
			for range n {
				h, ok := m.tryAcquire(key, "")
				admitted(ok)
				m.release(h)
			}
		},
		holders: func() (labels []string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, h := range m.byKey[key] {
				labels = append(labels, h.label)
			}
			return labels
		},
	}
}

// newTTLCounter is the design that failed in production.
func newTTLCounter(limit int) limiter {
	cache := ttlcache.New(
		ttlcache.WithTTL[inflight.Key, *atomic.Int64](10*time.Minute),
		ttlcache.WithDisableTouchOnHit[inflight.Key, *atomic.Int64](),
	)
	try := func() (*atomic.Int64, bool) {
		item, _ := cache.GetOrSetFunc(key, func() *atomic.Int64 { return new(atomic.Int64) })
		count := item.Value()
		if count.Add(1) > int64(limit) {
			count.Add(-1)
			return nil, false
		}
		return count, true
	}
	return limiter{
		take: func(string) (func(), bool) {
			count, ok := try()
			return func() { count.Add(-1) }, ok
		},
		cycle: func(n int) {
			for range n {
				count, ok := try()
				admitted(ok)
				count.Add(-1)
			}
		},
	}
}

func newRegistry(limits inflight.Limits) *inflight.Registry {
	return must(inflight.New(inflight.Config{Limits: inflight.Fixed(limits), SweepInterval: -1, MaxWaiters: math.MaxInt32}))
}

// cycle is what most rows about inflight measure.
func cycle(reg *inflight.Registry, k inflight.Key, n int) {
	for range n {
		slot, err := reg.TryAcquire(k)
		admitted(err == nil)
		slot.Release()
	}
}

func admitted(ok bool) {
	if !ok {
		panic("bench: refused")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
