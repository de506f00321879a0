package grpcinflight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/grpcinflight"
)

// sides make a site whose server is limited, and one whose client is.
var sides = []struct {
	name string
	site func(t *testing.T, r registry, cfg grpcinflight.Config, serve func(served) error) site
}{
	{"server", func(t *testing.T, r registry, cfg grpcinflight.Config, serve func(served) error) site {
		t.Helper()
		return newSite(t, serve, limitServer(r.Registry, cfg), nil)
	}},
	{"client", func(t *testing.T, r registry, cfg grpcinflight.Config, serve func(served) error) site {
		t.Helper()
		return newSite(t, serve, nil, limitClient(r.Registry, cfg))
	}},
}

// All functions of a Config get the method and the metadata, and say what the slot looks like.
func TestConfig(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 100)
			cfg := grpcinflight.Config{
				Key: func(_ context.Context, method string, md metadata.MD) (inflight.Key, error) {
					return inflight.Key{Org: md.Get("org")[0], Model: method}, nil
				},
				Also: func(_ context.Context, method string, md metadata.MD) []inflight.Key {
					return []inflight.Key{{Org: "also " + md.Get("org")[0], Model: method}}
				},
				Weight: func(_ context.Context, method string, md metadata.MD) int {
					return len(method) + len(md.Get("org"))
				},
				Label: func(_ context.Context, method string, md metadata.MD) string {
					return md.Get("org")[0] + " calls " + method
				},
			}
			slots := make(chan []inflight.SlotInfo, 1)
			methods := map[string]string{
				"unary": "UnaryCall", "client streaming": "StreamingInputCall",
				"server streaming": "StreamingOutputCall", "bidirectional": "FullDuplexCall",
			}
			method := "/grpc.testing.TestService/" + methods[k.name]
			serve := func(c served) error {
				slots <- r.Slots(0)
				return drain(c)
			}
			for _, side := range sides {
				t.Run(side.name, func(t *testing.T) {
					s := side.site(t, r, cfg, serve)
					require.NoError(t, s.do(metadata.AppendToOutgoingContext(t.Context(), "org", "acme"), k))
					got := receive(t, slots)
					require.Len(t, got, 1)
					require.Equal(t, inflight.Key{Org: "acme", Model: method}, got[0].Key)
					require.Equal(t, []inflight.Key{{Org: "also acme", Model: method}}, got[0].Also)
					require.Equal(t, len(method)+1, got[0].Weight)
					require.Equal(t, "acme calls "+method, got[0].Label)
				})
			}
			cfg = named
			for _, side := range sides {
				t.Run(side.name, func(t *testing.T) {
					s := side.site(t, r, cfg, serve)
					require.NoError(t, s.do(t.Context(), k))
					got := receive(t, slots)
					require.Len(t, got, 1)
					require.Equal(t, method, got[0].Label)
					require.Equal(t, 1, got[0].Weight)
				})
			}
		})
	}
}

// Skipped calls work when there is no room, and do not count.
func TestSkip(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			defer r.hold(t).Release()
			cfg := named
			cfg.Skip = func(_ context.Context, method string, md metadata.MD) bool {
				return method != "" && len(md.Get("probe")) > 0
			}
			for _, side := range sides {
				t.Run(side.name, func(t *testing.T) {
					s := side.site(t, r, cfg, drain)
					require.NoError(t, s.do(metadata.AppendToOutgoingContext(t.Context(), "probe", "1"), k))
					require.Equal(t, codes.ResourceExhausted, status.Code(s.do(t.Context(), k)))
					require.Equal(t, uint64(1), r.Stats().Admitted)
				})
			}
		})
	}
}

func TestWaitGranted(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			cfg := named
			cfg.Wait = time.Hour
			for _, side := range sides {
				t.Run(side.name, func(t *testing.T) {
					s := side.site(t, r, cfg, drain)
					slot := r.hold(t)
					done := s.start(t.Context(), k)
					r.awaits(t, 1)
					slot.Release()
					require.NoError(t, receive(t, done))
					r.is(t, 0)
				})
			}
		})
	}
}

func TestWaitCancelled(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			defer r.hold(t).Release()
			cfg := named
			cfg.Wait = time.Hour
			never := func(served) error { panic("the handler ran") }
			for _, side := range sides {
				t.Run(side.name, func(t *testing.T) {
					s := side.site(t, r, cfg, never)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					done := s.start(ctx, k)
					r.awaits(t, 1)
					cancel()
					require.Equal(t, codes.Canceled, status.Code(receive(t, done)))
					r.awaits(t, 0)

					ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					require.Equal(t, codes.DeadlineExceeded, status.Code(s.do(ctx, k)))
					r.awaits(t, 0)
				})
			}
		})
	}
}

// Wait is the bound of the wait, and its end is a full limit like any other.
func TestWaitBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, 1)
		slot := r.hold(t)
		cfg := named
		cfg.Wait = 3 * time.Second
		begun := time.Now()
		err := grpcinflight.UnaryClientInterceptor(r.Registry, cfg)(t.Context(), "/m", nil, nil, nil, nil)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, 3*time.Second, time.Since(begun))
		slot.Release()
	})
}

func TestPanicsAtSetUp(t *testing.T) {
	r := newRegistry(t, 1)
	for name, build := range map[string]func(inflight.Acquirer, grpcinflight.Config){
		"UnaryServerInterceptor":  func(a inflight.Acquirer, c grpcinflight.Config) { grpcinflight.UnaryServerInterceptor(a, c) },
		"StreamServerInterceptor": func(a inflight.Acquirer, c grpcinflight.Config) { grpcinflight.StreamServerInterceptor(a, c) },
		"UnaryClientInterceptor":  func(a inflight.Acquirer, c grpcinflight.Config) { grpcinflight.UnaryClientInterceptor(a, c) },
		"StreamClientInterceptor": func(a inflight.Acquirer, c grpcinflight.Config) { grpcinflight.StreamClientInterceptor(a, c) },
	} {
		require.PanicsWithValue(t, "grpcinflight: "+name+": Config.Key is nil", func() { build(r.Registry, grpcinflight.Config{}) })
		require.PanicsWithValue(t, "grpcinflight: "+name+": Acquirer is nil", func() { build(nil, named) })
	}
}

// A panic in a function of the Config goes on, with nothing taken.
func TestPanicInConfig(t *testing.T) {
	r := newRegistry(t, 1)
	cfg := named
	cfg.Label = func(context.Context, string, metadata.MD) string { panic("no label") }
	require.PanicsWithValue(t, "no label", func() {
		_ = grpcinflight.UnaryClientInterceptor(r.Registry, cfg)(t.Context(), "/m", nil, nil, nil, nil)
	})
	require.PanicsWithValue(t, "no label", func() {
		_ = grpcinflight.StreamServerInterceptor(r.Registry, cfg)(nil, bareStream{t.Context()}, &grpc.StreamServerInfo{}, nil)
	})
	r.settled(t, 0)
}
