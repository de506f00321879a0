package grpcinflight_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/inflight-go/inflight"
)

// drop opens a stream, and forgets it.
func drop(ctx context.Context, t *testing.T, s site, k kind) {
	t.Helper()
	c, err := k.open(ctx, s)
	require.NoError(t, err)
	require.NoError(t, c.send())
}

// swept collects garbage and sweeps until a sweep has found lost slots.
func swept(t *testing.T, r registry) (lost []inflight.SlotInfo) {
	t.Helper()
	eventually(t, func() bool {
		runtime.GC()
		lost = append(lost, r.Sweep().Lost...)
		return len(lost) > 0
	})
	return lost
}

// awaiting makes a site whose client is limited and whose handlers wait for the end of the call and say so.
func awaiting(t *testing.T, cfg inflight.Config) (registry, site, <-chan struct{}) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	r := newRegistryOf(t, cfg)
	ended := make(chan struct{}, 1)
	return r, newSite(t, func(c served) error {
		<-c.ctx.Done()
		ended <- struct{}{}
		return nil
	}, nil, limitClient(r.Registry, named)), ended
}

// What gRPC keeps of an open stream does not keep a dropped one from being found lost, whether its context can end or
// not, nor does it keep the slot when the context does end.
func TestDroppedStreamIsFoundLost(t *testing.T) {
	for _, k := range streams {
		t.Run(k.name, func(t *testing.T) {
			r, s, ended := awaiting(t, inflight.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			drop(ctx, t, s, k)
			require.Len(t, swept(t, r), 1)
			r.is(t, 1)
			cancel()
			r.becomes(t, 0)
			receive(t, ended)
		})
	}
}

// With ReclaimLost the slot of a dropped stream is free, and the call that nobody can end any more ends.
func TestDroppedStreamIsReclaimed(t *testing.T) {
	cfg := inflight.Config{ReclaimLost: true}
	for _, k := range streams {
		t.Run(k.name, func(t *testing.T) {
			r, s, ended := awaiting(t, cfg)
			drop(context.Background(), t, s, k)
			require.Len(t, swept(t, r), 1)
			r.is(t, 0)
			receive(t, ended)
		})
	}
}

// A stream in use is not lost, however long nobody looks at its slot.
func TestOpenStreamIsNotLost(t *testing.T) {
	for _, k := range streams {
		t.Run(k.name, func(t *testing.T) {
			r, s, _ := awaiting(t, inflight.Config{})
			c, err := k.open(t.Context(), s)
			require.NoError(t, err)
			for range 5 {
				runtime.GC()
				require.Empty(t, r.Sweep().Lost)
			}
			runtime.KeepAlive(c)
		})
	}
}

// Of an acquirer that is not the registry itself a dropped stream still ends with its context.
func TestDroppedStreamOfAnotherAcquirer(t *testing.T) {
	r := newRegistry(t, 1)
	s := newSite(t, drain, []grpc.ServerOption{}, limitClient(struct{ inflight.Acquirer }{r}, named))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	drop(ctx, t, s, bidirectional)
	for range 3 {
		runtime.GC()
		r.Sweep()
	}
	r.is(t, 1)
	cancel()
	r.becomes(t, 0)
	r.settled(t, 1)
}
