package grpcinflight

import (
	"context"
	"errors"
	"io"
	"slices"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
)

// UnaryClientInterceptor returns an interceptor that takes a slot for each unary call and holds it until the call has
// ended, also by a panic. It panics at once if there is no acquirer or no Key. What it returns is safe for concurrent
// use.
//
// A call that is refused is never sent. The end of the slot, by Cancel, Evict or MaxHold, cancels the call. What gRPC,
// or an interceptor further in, retries by itself stays within one slot.
func UnaryClientInterceptor(a inflight.Acquirer, cfg Config) grpc.UnaryClientInterceptor {
	d := newDoor("UnaryClientInterceptor", a, cfg)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		slot, refused := d.enterClient(ctx, method)
		if refused != nil {
			return refused
		}
		if slot == nil {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		defer slot.Release()
		return invoke(slot.Context(ctx), method, req, reply, cc, opts...)
	}
}

// StreamClientInterceptor returns an interceptor that takes a slot for each stream, as UnaryClientInterceptor does for
// unary calls, and holds it until the stream has ended. That is the first of
//
//   - an error of RecvMsg, io.EOF included, or where there is a single response (CloseAndRecv) the status after it,
//   - an error of SendMsg or Header, but for io.EOF,
//   - the end of the context that the stream was made with,
//   - the Close of the grpc.ClientConn.
//
// A stream that is dropped before that keeps its slot. If the garbage collector finds it before its context ends, the
// sweep reports the slot as lost. That takes an acquirer that is the *inflight.Registry itself.
func StreamClientInterceptor(a inflight.Acquirer, cfg Config) grpc.StreamClientInterceptor {
	d := newDoor("StreamClientInterceptor", a, cfg)
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, newStream grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		slot, refused := d.enterClient(ctx, method)
		if refused != nil {
			return nil, refused
		}
		if slot == nil {
			return newStream(ctx, desc, cc, method, opts...)
		}
		ctx, cancel := context.WithCancel(ctx)
		s := &clientStream{slot: slot, single: !desc.ServerStreams}
		open := false
		defer s.endUnless(&open)
		release := d.releaser(slot)
		go tie(ctx, cancel, slot.Context(context.Background()).Done(), release)
		inner, err := newStream(ctx, desc, cc, method, append(slices.Clip(opts), grpc.OnFinish(onClose(release)))...)
		if err != nil {
			return nil, err
		}
		s.ClientStream, open = inner, true
		return s, nil
	}
}

func (d *door) enterClient(ctx context.Context, method string) (*inflight.Slot, *refusalError) {
	md, _ := metadata.FromOutgoingContext(ctx)
	return d.enter(ctx, method, md)
}

// releaser returns a function that releases the slot, for what gRPC keeps as long as the stream is open. It must not
// keep a stream that was dropped from being found lost, so it does not refer to the handle. If that is gone when the
// slot is to be released, all that is left is to evict it. Of another acquirer nothing is known, and keeping the handle
// is the lesser evil.
func (d *door) releaser(slot *inflight.Slot) func() {
	registry, ok := d.acquirer.(*inflight.Registry)
	if !ok {
		return slot.Release
	}
	handle, id := weak.Make(slot), slot.ID()
	return func() {
		if slot := handle.Value(); slot != nil {
			slot.Release()
		} else {
			registry.Evict(id)
		}
	}
}

// tie ends the slot when the call's context ends, and the call when the slot's contexts end. After a Cancel or by
// MaxHold the slot still counts then, but with the call goes what it stood for.
func tie(ctx context.Context, cancel context.CancelFunc, slotEnded <-chan struct{}, release func()) {
	select {
	case <-slotEnded:
	case <-ctx.Done():
	}
	cancel()
	release()
}

// onClose releases when the connection was closed under the stream. Other ends are seen by clientStream: what gRPC
// takes for the end of the call may be the end of one attempt, to an interceptor further in that retries.
func onClose(release func()) func(error) {
	return func(err error) {
		if errors.Is(err, grpc.ErrClientConnClosing) { //nolint:staticcheck // nothing else tells it from a cancel
			release()
		}
	}
}

var errSecondResponse = status.Error(codes.Internal, "grpcinflight: a second response where there should be one")

// A clientStream is a stream that holds a slot.
type clientStream struct {
	grpc.ClientStream

	slot   *inflight.Slot
	single bool // there is one response

	status error // what came after the single response
}

// endUnless ends the slot, and by tie the call, unless the stream is still open: after a panic it is not.
func (s *clientStream) endUnless(open *bool) {
	if !*open {
		s.slot.Release()
	}
}

func (s *clientStream) Header() (metadata.MD, error) {
	open := false
	defer s.endUnless(&open)
	md, err := s.ClientStream.Header()
	open = err == nil || errors.Is(err, io.EOF)
	return md, err
}

func (s *clientStream) SendMsg(m any) error {
	open := false
	defer s.endUnless(&open)
	err := s.ClientStream.SendMsg(m)
	open = err == nil || errors.Is(err, io.EOF) // the status is still to be received
	return err
}

// RecvMsg reads on after a single response, since only with the status the call has ended. gRPC, which calls RecvMsg
// again for the status, then gets it from here.
func (s *clientStream) RecvMsg(m any) error {
	if s.status != nil {
		return s.status
	}
	open := false
	defer s.endUnless(&open)
	err := s.ClientStream.RecvMsg(m)
	if err != nil || !s.single {
		open = err == nil
		return err
	}
	switch s.status = s.ClientStream.RecvMsg(m); {
	case s.status == nil:
		s.status = errSecondResponse
	case errors.Is(s.status, io.EOF):
		return nil
	}
	return s.status
}
