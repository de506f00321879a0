package main

import (
	"log/slog"
	"sync"
	"time"

	"github.com/inflight-go/inflight"
)

// A design is a way to decide who is let in.
type design struct {
	name   string
	admit  func() (release func(), ok bool) // safe for concurrent use, as release is
	atHead bool                             // release is called at the response head, not at the end
}

// ttlCounter is a counter in a cache: made at its first use and gone ttl later, whoever it still counts. The next request
// finds none and makes another. A release goes to the counter that counted the request, even if nobody sees that any more.
type ttlCounter struct {
	ttl   time.Duration
	limit int

	mu      sync.Mutex
	current *int
	expires time.Time
}

func (c *ttlCounter) admit() (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.current == nil || !now.Before(c.expires) {
		c.current, c.expires = new(int), now.Add(c.ttl)
	}
	count := c.current
	if *count >= c.limit {
		return nil, false
	}
	*count++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*count--
	}, true
}

// newRegistry is what the other designs admit with, sweeper and all.
func newRegistry(limit int) (*inflight.Registry, error) {
	return inflight.New(inflight.Config{
		Name:   "incident",
		Limits: inflight.Fixed(inflight.Limits{Key: limit}),
		Logger: slog.New(slog.DiscardHandler), // who holds long is no news in a replay
	})
}

func admitTo(reg *inflight.Registry) func() (release func(), ok bool) {
	return func() (release func(), ok bool) {
		slot, err := reg.TryAcquire(inflight.Key{Org: "acme", Model: "glm"})
		return slot.Release, err == nil
	}
}
