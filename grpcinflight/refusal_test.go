package grpcinflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/grpcinflight"
)

// An acquirer admits as the function says.
type acquirer func(context.Context, inflight.Key, ...inflight.Option) (*inflight.Slot, error)

func (f acquirer) Acquire(ctx context.Context, k inflight.Key, o ...inflight.Option) (*inflight.Slot, error) {
	return f(ctx, k, o...)
}

// A hint is an error that knows when to come again.
type hint struct {
	error

	after time.Duration
}

func (h hint) RetryAfter() time.Duration { return h.after }
func (h hint) Unwrap() error             { return h.error }

// hinted is the registry with a hint around each of its errors.
func (r registry) hinted(after time.Duration) acquirer {
	return func(ctx context.Context, k inflight.Key, o ...inflight.Option) (*inflight.Slot, error) {
		slot, err := r.Acquire(ctx, k, o...)
		if err != nil {
			err = hint{err, after}
		}
		return slot, err
	}
}

// delayOf is the delay of the RetryInfo in a status, -1 if there is none. There must be nothing else in it.
func delayOf(t *testing.T, s *status.Status) time.Duration {
	t.Helper()
	if len(s.Details()) == 0 {
		return -1
	}
	require.Len(t, s.Details(), 1)
	require.IsType(t, &errdetails.RetryInfo{}, s.Details()[0])
	info, _ := s.Details()[0].(*errdetails.RetryInfo)
	return info.GetRetryDelay().AsDuration()
}

// A refusal says its kind and when to come again, and no more, in the same way on both sides. The handler never runs.
func TestRefusal(t *testing.T) {
	fixed := func(l inflight.Limits) inflight.Config { return inflight.Config{Limits: inflight.Fixed(l)} }
	failing := func(err error) func(*testing.T) (inflight.Acquirer, grpcinflight.Config) {
		return func(*testing.T) (inflight.Acquirer, grpcinflight.Config) {
			return acquirer(func(context.Context, inflight.Key, ...inflight.Option) (*inflight.Slot, error) {
				return nil, err
			}), named
		}
	}
	full := func(l inflight.Limits) func(*testing.T) (inflight.Acquirer, grpcinflight.Config) {
		return func(t *testing.T) (inflight.Acquirer, grpcinflight.Config) {
			t.Helper()
			r := newRegistryOf(t, fixed(l))
			t.Cleanup(r.hold(t).Release)
			return r.Registry, named
		}
	}
	weighing := func(weight int, l inflight.Limits) func(*testing.T) (inflight.Acquirer, grpcinflight.Config) {
		return func(t *testing.T) (inflight.Acquirer, grpcinflight.Config) {
			t.Helper()
			cfg := named
			cfg.Weight = func(context.Context, string, metadata.MD) int { return weight }
			return newRegistryOf(t, fixed(l)).Registry, cfg
		}
	}
	noKey := errors.New("no api key acme-123")
	for _, c := range []struct {
		name     string
		set      func(*testing.T) (inflight.Acquirer, grpcinflight.Config)
		code     codes.Code
		message  string
		delay    time.Duration // -1: none
		pushback string
		reason   error
	}{
		{"key", full(inflight.Limits{Key: 1}), codes.ResourceExhausted, tooMany, time.Second, "1000", inflight.ErrLimit},
		{"org", full(inflight.Limits{Org: 1}), codes.ResourceExhausted, tooMany, time.Second, "1000", inflight.ErrLimit},
		{"model", full(inflight.Limits{Model: 1}), codes.ResourceExhausted, tooMany, time.Second, "1000", inflight.ErrLimit},
		{"total", full(inflight.Limits{Total: 1}), codes.Unavailable, notNow, time.Second, "1000", inflight.ErrLimit},
		{"hint", func(t *testing.T) (inflight.Acquirer, grpcinflight.Config) {
			t.Helper()
			r := newRegistry(t, 1)
			t.Cleanup(r.hold(t).Release)
			return r.hinted(2500*time.Millisecond + time.Nanosecond), named
		}, codes.ResourceExhausted, tooMany, 2500*time.Millisecond + time.Nanosecond, "2501", inflight.ErrLimit},
		{
			"hint of nothing", failing(hint{inflight.ErrLimit, 0}),
			codes.ResourceExhausted, tooMany, time.Second, "1000", inflight.ErrLimit,
		},
		{"closed", func(t *testing.T) (inflight.Acquirer, grpcinflight.Config) {
			t.Helper()
			r := newRegistry(t, 1)
			require.NoError(t, r.Close())
			return r.Registry, named
		}, codes.Unavailable, notNow, time.Second, "1000", inflight.ErrClosed},
		{"too heavy", weighing(3, inflight.Limits{Key: 2}), codes.ResourceExhausted, tooMany, -1, "-1", inflight.ErrLimit},
		{
			"too heavy for all", weighing(3, inflight.Limits{Total: 2}),
			codes.Unavailable, notNow, -1, "-1", inflight.ErrLimit,
		},
		{
			"blocked", weighing(1, inflight.Limits{Key: inflight.Blocked}),
			codes.ResourceExhausted, tooMany, -1, "-1", inflight.ErrLimit,
		},
		{"negative weight", weighing(-1, inflight.Limits{}), codes.Internal, "internal error", -1, "", nil},
		{"no key", func(t *testing.T) (inflight.Acquirer, grpcinflight.Config) {
			t.Helper()
			return newRegistry(t, 1).Registry, grpcinflight.Config{
				Key: func(context.Context, string, metadata.MD) (inflight.Key, error) { return inflight.Key{}, noKey },
			}
		}, codes.InvalidArgument, "the call does not say what it is for", -1, "", noKey},
		{
			"cancelled", failing(fmt.Errorf("acme: %w", context.Canceled)),
			codes.Canceled, "the call was cancelled", -1, "", context.Canceled,
		},
		{
			"deadline", failing(fmt.Errorf("acme: %w", context.DeadlineExceeded)), codes.DeadlineExceeded,
			"the call timed out while it waited for its turn", -1, "", context.DeadlineExceeded,
		},
		{"other", failing(errors.New("acme has no fleet")), codes.Internal, "internal error", -1, "", nil},
		{"nothing", failing(nil), codes.Internal, "internal error", -1, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) {
					var ran atomic.Int32
					count := func(c served) error {
						ran.Add(1)
						return drain(c)
					}
					var trailer metadata.MD
					check := func(err error) {
						t.Helper()
						s, ok := status.FromError(err)
						require.True(t, ok)
						require.Equal(t, c.code, s.Code())
						require.Equal(t, c.message, s.Message())
						require.Equal(t, c.delay, delayOf(t, s))
						require.Zero(t, ran.Load())
					}
					a, cfg := c.set(t)
					there := newSite(t, count, limitServer(a, cfg), []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.Trailer(&trailer))})
					check(there.do(t.Context(), k))
					var pushback []string
					if c.pushback != "" {
						pushback = []string{c.pushback}
					}
					require.Equal(t, pushback, trailer["grpc-retry-pushback-ms"])

					here := newSite(t, count, nil, limitClient(a, cfg))
					err := here.do(t.Context(), k)
					check(err)
					if c.reason != nil {
						require.ErrorIs(t, err, c.reason)
					}
					require.NotContains(t, err.Error(), "acme") // gRPC sends the text, if a handler wraps the error
				})
			}
		})
	}
}

const (
	tooMany = "too many requests in flight"
	notNow  = "the call cannot be taken now"
)

// The error of a client names the limit that refused, and so does that of a server to an interceptor further out.
func TestRefusalKeepsTheReason(t *testing.T) {
	r := newRegistry(t, 1)
	defer r.hold(t).Release()
	isFull := func(err error) {
		t.Helper()
		var limit *inflight.LimitError
		require.ErrorAs(t, err, &limit)
		require.Equal(t, acme, limit.Key)
		require.Equal(t, 1, limit.Limit)
	}
	isFull(grpcinflight.UnaryClientInterceptor(r.Registry, named)(t.Context(), "/m", nil, nil, nil, nil))
	_, err := grpcinflight.StreamClientInterceptor(r.Registry, named)(t.Context(), nil, nil, "/m", nil)
	isFull(err)
	_, err = grpcinflight.UnaryServerInterceptor(r.Registry, named)(t.Context(), nil, &grpc.UnaryServerInfo{}, nil)
	isFull(err)
	isFull(grpcinflight.StreamServerInterceptor(r.Registry, named)(nil, bareStream{t.Context()}, &grpc.StreamServerInfo{}, nil))
}

// A client with a retry policy comes again when the server has told it to, and not when that cannot help.
func TestRetryPolicy(t *testing.T) {
	policy := grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 2, "initialBackoff": "3600s", "maxBackoff": "3600s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			slot := r.hold(t)
			a := acquirer(func(ctx context.Context, k inflight.Key, o ...inflight.Option) (*inflight.Slot, error) {
				defer slot.Release() // so that there is room the second time
				return r.hinted(time.Millisecond).Acquire(ctx, k, o...)
			})
			s := newSite(t, drain, limitServer(a, named), []grpc.DialOption{policy})
			require.NoError(t, s.do(t.Context(), k))
			r.settled(t, 2)
			require.Equal(t, uint64(1), r.Stats().RejectedTotal())
		})
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			cfg := named
			cfg.Weight = func(context.Context, string, metadata.MD) int { return 2 }
			s := newSite(t, drain, limitServer(r.Registry, cfg), []grpc.DialOption{policy})
			require.Equal(t, codes.ResourceExhausted, status.Code(s.do(t.Context(), k)))
			require.Equal(t, uint64(1), r.Stats().RejectedTotal())
		})
	}
}
