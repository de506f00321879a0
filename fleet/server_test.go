//go:build unix

package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

const (
	brief  = time.Second // the TTL on a real server
	shards = 4
)

// A peer is a process of a fleet on a real server, in the process of the test.
type peer struct {
	*fleet.Fleet

	t *testing.T
}

// peerOf makes a peer that ends with the test, whatever it holds.
func peerOf(t *testing.T, client redis.UniversalClient, limit int, cfg fleet.Config) *peer {
	t.Helper()
	f, err := fleet.New(t.Context(), client, newRegistry(t, inflight.Limits{Key: limit}), settings(cfg))
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Close(ended)
	})
	return &peer{f, t}
}

func settings(cfg fleet.Config) fleet.Config {
	cfg.TTL, cfg.Shards = brief, shards
	if cfg.Logger == nil {
		cfg.Logger = silent()
	}
	return cfg
}

// get waits for a slot.
func (p *peer) get(k inflight.Key, weight int) *inflight.Slot {
	p.t.Helper()
	s, err := p.Acquire(p.t.Context(), k, inflight.Weight(weight), inflight.MaxWait(soon))
	require.NoError(p.t, err)
	return s
}

// try takes a slot of weight 1, if there is room.
func (p *peer) try(k inflight.Key) (*inflight.Slot, bool) {
	p.t.Helper()
	s, err := p.Acquire(p.t.Context(), k, inflight.MaxWait(0))
	if err != nil {
		require.ErrorIs(p.t, err, inflight.ErrLimit)
	}
	return s, err == nil
}

// fill takes what there is room for.
func (p *peer) fill(k inflight.Key) []*inflight.Slot {
	p.t.Helper()
	var slots []*inflight.Slot
	for {
		s, ok := p.try(k)
		if !ok {
			return slots
		}
		slots = append(slots, s)
	}
}

func (p *peer) refuses(k inflight.Key) {
	p.t.Helper()
	_, ok := p.try(k)
	require.False(p.t, ok, "it was admitted")
}

// waiter starts an Acquire, which gives back what it gets. The channel gets its error.
func (p *peer) waiter(k inflight.Key) <-chan error {
	ended := make(chan error, 1)
	waiting := p.Registry().Stats().Waiters
	go func() {
		s, err := p.Acquire(p.t.Context(), k, inflight.MaxWait(soon))
		if err == nil {
			s.Release()
		}
		ended <- err
	}()
	eventually(p.t, func() bool { return p.Registry().Stats().Waiters > waiting }, "it does not wait")
	return ended
}

// fallen waits until all shards have lapsed.
func (p *peer) fallen() {
	p.t.Helper()
	eventually(p.t, func() bool { return p.Stats().Fallback == shards }, "the leases do not lapse")
}

// recovered waits until all shards are renewed, and have learned what others have.
func (p *peer) recovered() {
	p.t.Helper()
	eventually(p.t, func() bool {
		s := p.Stats()
		return s.Fallback == 0 && s.Learning == 0 && time.Since(s.LastSync) < brief
	}, "the engine is not found again")
}

// goOn checks that slots that were held all the time still are, and gives them back, which takes no time.
func (p *peer) goOn(k inflight.Key, slots []*inflight.Slot) {
	p.t.Helper()
	require.Equal(p.t, len(slots), p.Registry().InUse(k))
	for _, s := range slots {
		require.NoError(p.t, s.Context(p.t.Context()).Err())
	}
	released := make(chan struct{})
	go func() {
		releaseAll(slots)
		close(released)
	}()
	select {
	case <-released:
	case <-time.After(soon):
		require.FailNow(p.t, "Release hangs")
	}
	require.Zero(p.t, p.Registry().InUse(k))
}

func eventually(t *testing.T, done func() bool, what string) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for !done() {
		if time.Now().After(deadline) {
			require.FailNow(t, "it did not happen", what)
		}
		time.Sleep(tick)
	}
}
