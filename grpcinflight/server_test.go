package grpcinflight_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/grpcinflight"
)

func TestServerContextCarriesTheSlot(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			slots := make(chan *inflight.Slot, 1)
			s := newSite(t, func(c served) error {
				slots <- inflight.FromContext(c.ctx)
				return drain(c)
			}, limitServer(r.Registry, named), nil)
			require.NoError(t, s.do(t.Context(), k))
			slot := receive(t, slots)
			require.NotNil(t, slot)
			require.Equal(t, acme, slot.Key())
		})
	}
}

// A handler that leaves work behind takes its slot along.
func TestServerTake(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			taken, again := make(chan *inflight.Slot, 1), make(chan *inflight.Slot, 1)
			s := newSite(t, func(c served) error {
				taken <- inflight.Take(c.ctx)
				again <- inflight.Take(c.ctx)
				return drain(c)
			}, limitServer(r.Registry, named), nil)
			require.NoError(t, s.do(t.Context(), k))
			slot := receive(t, taken)
			require.NotNil(t, slot)
			require.Nil(t, receive(t, again))
			r.is(t, 1)
			slot.Release()
			r.settled(t, 1)
		})
	}
}

// What was not taken before the handler has returned cannot be taken after.
func TestServerTakeTooLate(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			contexts := make(chan context.Context, 1)
			s := newSite(t, func(c served) error {
				contexts <- c.ctx
				return drain(c)
			}, limitServer(r.Registry, named), nil)
			require.NoError(t, s.do(t.Context(), k))
			require.Nil(t, inflight.Take(receive(t, contexts)))
			r.settled(t, 1)
		})
	}
}

// The slot goes with the handler, not with the client.
func TestServerHoldsUntilTheHandlerReturns(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			running, gone, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
			s := newSite(t, func(c served) error {
				close(running)
				<-c.ctx.Done()
				close(gone)
				<-goOn
				return nil
			}, limitServer(r.Registry, named), nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := s.start(ctx, k)
			receive(t, running)
			r.is(t, 1)
			cancel()
			require.Equal(t, codes.Canceled, status.Code(receive(t, done)))
			receive(t, gone)
			r.is(t, 1)
			close(goOn)
			r.becomes(t, 0)
			r.settled(t, 1)
		})
	}
}

// Cancel, Evict and MaxHold reach the handler by its context.
func TestServerEndedByForce(t *testing.T) {
	boom := errors.New("boom")
	for _, force := range []struct {
		name string
		by   func(r registry, id uint64)
		want error
	}{
		{"cancel", func(r registry, id uint64) { r.Cancel(id, boom) }, boom},
		{"evict", func(r registry, id uint64) { r.Evict(id) }, inflight.ErrEvicted},
		{"max hold", func(r registry, _ uint64) { r.Sweep() }, inflight.ErrHeldTooLong},
	} {
		t.Run(force.name, func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) {
					r := newRegistryOf(t, inflight.Config{MaxHold: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)})
					running, causes := make(chan struct{}), make(chan error, 1)
					s := newSite(t, func(c served) error {
						running <- struct{}{}
						<-c.ctx.Done()
						causes <- context.Cause(c.ctx)
						return status.FromContextError(c.ctx.Err()).Err()
					}, limitServer(r.Registry, named), nil)
					done := s.start(t.Context(), k)
					receive(t, running)
					r.is(t, 1)
					force.by(r, r.Slots(1)[0].ID)
					require.ErrorIs(t, receive(t, causes), force.want)
					require.Equal(t, codes.Canceled, status.Code(receive(t, done)))
					r.becomes(t, 0)
				})
			}
		})
	}
}

// A stream's handler that does not look at its context ends with its next message.
func TestServerStreamIsCut(t *testing.T) {
	r := newRegistry(t, 1)
	sends, recvs := make(chan error, 1), make(chan error, 1)
	s := newSite(t, func(c served) error {
		if err := errors.Join(c.recv(), c.send()); err != nil {
			return err
		}
		r.Evict(inflight.FromContext(c.ctx).ID())
		sends <- c.send()
		recvs <- c.recv()
		return nil
	}, limitServer(r.Registry, named), nil)
	require.NoError(t, s.do(t.Context(), bidirectional))
	require.Equal(t, codes.Canceled, status.Code(receive(t, sends)))
	require.Equal(t, codes.Canceled, status.Code(receive(t, recvs)))
}

// A stream's handler that gave its slot back itself may go on talking.
func TestServerStreamAfterRelease(t *testing.T) {
	r := newRegistry(t, 1)
	s := newSite(t, func(c served) error {
		inflight.Take(c.ctx).Release()
		return drain(c)
	}, limitServer(r.Registry, named), nil)
	c, err := bidirectional.open(t.Context(), s)
	require.NoError(t, err)
	require.NoError(t, c.send())
	require.NoError(t, c.recv())
	r.is(t, 0)
	require.NoError(t, c.finish())
	r.settled(t, 1)
}

// The slot is released when the handler panics or exits, and the panic goes on.
func TestServerPanicAndGoexit(t *testing.T) {
	r := newRegistry(t, 1)
	callUnary := func(f func()) {
		_, _ = grpcinflight.UnaryServerInterceptor(r.Registry, named)(t.Context(), nil, &grpc.UnaryServerInfo{},
			func(context.Context, any) (any, error) {
				f()
				return nil, io.EOF
			})
	}
	callStream := func(f func()) {
		_ = grpcinflight.StreamServerInterceptor(r.Registry, named)(nil, bareStream{t.Context()}, &grpc.StreamServerInfo{},
			func(any, grpc.ServerStream) error {
				f()
				return nil
			})
	}
	for i, call := range []func(func()){callUnary, callStream} {
		require.PanicsWithError(t, "EOF", func() { call(func() { panic(io.EOF) }) })
		r.settled(t, uint64(2*i+1))
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			call(runtime.Goexit)
		}()
		receive(t, exited)
		r.settled(t, uint64(2*i+2))
	}
}

// A bareStream is a stream of a server that is nothing but a context.
type bareStream struct{ ctx context.Context } //nolint:containedctx // it is what Context returns

func (s bareStream) Context() context.Context { return s.ctx }
func (bareStream) SendMsg(any) error          { return nil }
func (bareStream) RecvMsg(any) error          { return nil }

func (bareStream) SetHeader(metadata.MD) error  { return nil }
func (bareStream) SendHeader(metadata.MD) error { return nil }
func (bareStream) SetTrailer(metadata.MD)       {}
