package grpcinflight_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// drain reads all requests and answers each.
func drain(c served) error {
	for {
		if err := c.recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := c.send(); err != nil {
			return err
		}
	}
}

// However a call of whatever kind ends, both sides hold one slot as long as it runs, and none after it.
func TestEveryEnd(t *testing.T) {
	await := func(c served) error {
		<-c.ctx.Done()
		return status.FromContextError(c.ctx.Err()).Err()
	}
	ends := []struct {
		name   string
		serve  func(served) error
		client func(cancel func(), conn *grpc.ClientConn) // what the client does once the handler runs; nil: nothing
		within time.Duration                              // deadline of the call; 0: none
		want   codes.Code
	}{
		{"normal", drain, nil, 0, codes.OK},
		{"error", func(c served) error {
			return errors.Join(c.recv(), c.send(), status.Error(codes.Aborted, "half-way"))
		}, nil, 0, codes.Aborted},
		{"trailers only", func(served) error { return status.Error(codes.NotFound, "at once") }, nil, 0, codes.NotFound},
		{"panic", func(c served) error { panic(errors.Join(c.recv(), c.send())) }, nil, 0, codes.Internal},
		{"cancel", await, func(cancel func(), _ *grpc.ClientConn) { cancel() }, 0, codes.Canceled},
		{"deadline", await, nil, 50 * time.Millisecond, codes.DeadlineExceeded},
		{"close", await, func(_ func(), conn *grpc.ClientConn) { _ = conn.Close() }, 0, codes.Canceled},
	}
	nets := []struct {
		name string
		site func(*testing.T, func(served) error, []grpc.ServerOption, []grpc.DialOption) site
	}{{"bufconn", newSite}, {"loopback", newLoopback}}
	for _, net := range nets {
		for _, end := range ends {
			t.Run(net.name+"/"+end.name, func(t *testing.T) {
				for _, k := range kinds {
					t.Run(k.name, func(t *testing.T) {
						there, here := newRegistry(t, 1), newRegistry(t, 1)
						running, goOn := make(chan struct{}), make(chan struct{})
						s := net.site(t, func(c served) error {
							running <- struct{}{}
							<-goOn
							return end.serve(c)
						}, append(recovered(), limitServer(there.Registry, named)...), limitClient(here.Registry, named))

						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						if end.within > 0 {
							ctx, cancel = context.WithTimeout(ctx, end.within)
							defer cancel()
						}
						done := s.start(ctx, k)
						receive(t, running)
						there.is(t, 1)
						if end.within == 0 {
							here.is(t, 1)
						}
						close(goOn)
						if end.client != nil {
							end.client(cancel, s.conn)
						}
						require.Equal(t, end.want, status.Code(receive(t, done)))
						here.becomes(t, 0)
						there.becomes(t, 0)
						here.settled(t, 1)
						there.settled(t, 1)
					})
				}
			})
		}
	}
}

// Who has the status of a call finds both slots free: the next call is admitted at once.
func TestFreeAtTheStatus(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			there, here := newRegistry(t, 1), newRegistry(t, 1)
			s := newSite(t, drain, limitServer(there.Registry, named), limitClient(here.Registry, named))
			for range 50 {
				require.NoError(t, s.do(t.Context(), k))
				here.is(t, 0)
				there.is(t, 0)
			}
			here.settled(t, 50)
			there.settled(t, 50)
		})
	}
}

// A stream counts for as long as it runs, with or without messages, on each side by itself.
func TestHeldToTheEnd(t *testing.T) {
	for _, side := range []string{"server", "client"} {
		t.Run(side, func(t *testing.T) {
			r := newRegistry(t, 1)
			var server []grpc.ServerOption
			var client []grpc.DialOption
			if side == "server" {
				server = limitServer(r.Registry, named)
			} else {
				client = limitClient(r.Registry, named)
			}
			s := newSite(t, drain, server, client)
			c, err := bidirectional.open(t.Context(), s)
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, c.send())
				require.NoError(t, c.recv())
				r.is(t, 1)
				require.Equal(t, codes.ResourceExhausted, status.Code(s.do(t.Context(), serverStreaming)))
				require.Equal(t, codes.ResourceExhausted, status.Code(s.do(t.Context(), unary)))
			}
			require.NoError(t, c.finish())
			r.is(t, 0)
			require.NoError(t, s.do(t.Context(), serverStreaming))
			r.settled(t, 2)
		})
	}
}
