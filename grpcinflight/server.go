package grpcinflight

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
)

// UnaryServerInterceptor returns an interceptor that takes a slot for each unary call and holds it until the handler has
// returned. It panics at once if there is no acquirer or no Key. What it returns is safe for concurrent use.
//
// The handler finds its slot by inflight.FromContext(ctx); that context ends with the slot. The slot is released also
// when the handler panics or calls runtime.Goexit, and the panic goes on. It is not released when the client goes away,
// for the handler may still be at work; handlers should heed their context. A handler that leaves work behind hands its
// slot on with inflight.Take. A call that is refused never reaches the handler.
func UnaryServerInterceptor(a inflight.Acquirer, cfg Config) grpc.UnaryServerInterceptor {
	d := newDoor("UnaryServerInterceptor", a, cfg)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		slot, refused := d.enterServer(ctx, info.FullMethod)
		if refused != nil {
			return nil, refused
		}
		if slot == nil {
			return handler(ctx, req)
		}
		defer leave(ctx, slot)
		return handler(slot.Context(ctx), req)
	}
}

// StreamServerInterceptor returns an interceptor that takes a slot for each stream and holds it until the handler has
// returned, as UnaryServerInterceptor does for unary calls.
//
// The stream's context carries the slot and ends with it. Once the slot was ended by Cancel, Evict or MaxHold, SendMsg
// and RecvMsg fail too, so that a handler which never looks at its context ends with its next message. One that is
// blocked in them is not woken, for gRPC has no means to do so: what ends it is the client, its deadline, or the
// server's keepalive.
func StreamServerInterceptor(a inflight.Acquirer, cfg Config) grpc.StreamServerInterceptor {
	d := newDoor("StreamServerInterceptor", a, cfg)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		slot, refused := d.enterServer(ctx, info.FullMethod)
		if refused != nil {
			return refused
		}
		if slot == nil {
			return handler(srv, stream)
		}
		defer leave(ctx, slot)
		return handler(srv, &serverStream{stream, slot.Context(ctx)})
	}
}

func (d *door) enterServer(ctx context.Context, method string) (*inflight.Slot, *refusalError) {
	md, _ := metadata.FromIncomingContext(ctx)
	slot, refused := d.enter(ctx, method, md)
	if refused != nil {
		_ = grpc.SetTrailer(ctx, refused.trailer()) // fails only where there is no server, or none to tell
	}
	return slot, refused
}

// leave releases the slot, unless the handler took it. From here on inflight.Take gives nil.
func leave(ctx context.Context, slot *inflight.Slot) {
	if inflight.Take(slot.Context(ctx)) != nil {
		slot.Release()
	}
}

// A serverStream is a stream whose context carries a slot.
type serverStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is what Context returns
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendMsg(m any) error {
	if err := s.cut(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *serverStream) RecvMsg(m any) error {
	if err := s.cut(); err != nil {
		return err
	}
	return s.ServerStream.RecvMsg(m)
}

// cut returns an error if the slot was ended by force. A handler that has released it itself may go on.
func (s *serverStream) cut() error {
	err := s.ctx.Err()
	if err == nil || errors.Is(context.Cause(s.ctx), inflight.ErrReleased) {
		return nil
	}
	return status.FromContextError(err).Err()
}
