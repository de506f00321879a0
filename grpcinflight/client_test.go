package grpcinflight_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/grpcinflight"
)

// The end of the slot cancels the call, and with the call the slot is free, even if nobody asks for the status.
func TestClientEndedByForce(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRegistry(t, 1)
			running, causes := make(chan struct{}, 1), make(chan error, 1)
			s := newSite(t, func(c served) error {
				running <- struct{}{}
				<-c.ctx.Done()
				causes <- c.ctx.Err()
				return nil
			}, nil, limitClient(r.Registry, named))
			var done <-chan error
			if k.name == unary.name {
				done = s.start(t.Context(), k)
			} else {
				_, err := k.open(t.Context(), s)
				require.NoError(t, err)
			}
			receive(t, running)
			r.is(t, 1)
			require.True(t, r.Cancel(r.Slots(1)[0].ID, errors.New("enough")))
			require.ErrorIs(t, receive(t, causes), context.Canceled)
			if done != nil {
				require.Equal(t, codes.Canceled, status.Code(receive(t, done)))
			}
			r.becomes(t, 0)
			r.settled(t, 1)
		})
	}
}

// A stream that nobody reads, and nobody drops either, ends with its context, or with the connection.
func TestClientStreamAbandoned(t *testing.T) {
	for _, k := range streams {
		for _, by := range []string{"context", "connection"} {
			t.Run(k.name+"/"+by, func(t *testing.T) {
				r := newRegistry(t, 1)
				s := newSite(t, drain, nil, limitClient(r.Registry, named))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c, err := k.open(ctx, s)
				require.NoError(t, err)
				r.is(t, 1)
				if by == "context" {
					cancel()
				} else {
					require.NoError(t, s.conn.Close())
				}
				r.becomes(t, 0)
				r.settled(t, 1)
				runtime.KeepAlive(c)
			})
		}
	}
}

// The response alone is not the end of a call: the handler may be at work still.
func TestClientHoldsUntilTheStatus(t *testing.T) {
	r := newRegistry(t, 1)
	answered, goOn := make(chan struct{}), make(chan struct{})
	s := newSite(t, drain, []grpc.ServerOption{grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			err := next(srv, stream)
			close(answered)
			<-goOn
			stream.SetTrailer(metadata.Pairs("bye", "bye"))
			return err
		})}, limitClient(r.Registry, named))
	var trailer metadata.MD
	stream, err := s.StreamingInputCall(t.Context(), grpc.Trailer(&trailer))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := stream.CloseAndRecv()
		done <- err
	}()
	receive(t, answered)
	r.is(t, 1)
	close(goOn)
	require.NoError(t, receive(t, done))
	require.Equal(t, []string{"bye"}, trailer["bye"])
	r.settled(t, 1)
}

// A server that breaks off after the single response has failed the call.
func TestClientErrorAfterTheResponse(t *testing.T) {
	r := newRegistry(t, 1)
	s := newSite(t, drain, []grpc.ServerOption{grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return errors.Join(next(srv, stream), status.Error(codes.DataLoss, "after all"))
		})}, limitClient(r.Registry, named))
	require.Equal(t, codes.DataLoss, status.Code(s.do(t.Context(), clientStreaming)))
	r.settled(t, 1)
}

// A second response where there is to be one is an error, as without the interceptor.
func TestClientSecondResponse(t *testing.T) {
	r := newRegistry(t, 1)
	s := newSite(t, func(c served) error { return errors.Join(c.send(), c.send()) }, nil, limitClient(r.Registry, named))
	stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
		testgrpc.TestService_StreamingOutputCall_FullMethodName)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&testgrpc.StreamingOutputCallRequest{}))
	require.NoError(t, stream.CloseSend())
	require.Equal(t, codes.Internal, status.Code(stream.RecvMsg(&testgrpc.StreamingOutputCallResponse{})))
	r.settled(t, 1)
}

// An interceptor further in may open a stream several times for one call. That is one slot, to the end of the last.
func TestClientRetriesFurtherIn(t *testing.T) {
	r := newRegistry(t, 1)
	var calls atomic.Int32
	retry := func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		first, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		if err := first.RecvMsg(&testgrpc.StreamingOutputCallResponse{}); status.Code(err) != codes.Unavailable {
			return nil, errors.New("the first attempt did not fail")
		}
		r.is(t, 1)
		return open(ctx, desc, cc, method, opts...)
	}
	s := newSite(t, func(c served) error {
		if calls.Add(1) == 1 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return drain(c)
	}, nil, append(limitClient(r.Registry, named), grpc.WithChainStreamInterceptor(retry)))
	c, err := bidirectional.open(t.Context(), s)
	require.NoError(t, err)
	require.NoError(t, c.send())
	require.NoError(t, c.recv())
	r.is(t, 1)
	require.NoError(t, c.finish())
	r.settled(t, 1)
}

// Interceptors may hold a slot for the same key on both sides of a handler, if the inner one skips what the outer one
// covers.
func TestClientInsideServer(t *testing.T) {
	r := newRegistry(t, 1)
	behind := newSite(t, drain, nil, limitClient(r.Registry, grpcinflight.Config{
		Key: asAcme,
		Skip: func(ctx context.Context, _ string, _ metadata.MD) bool {
			slot := inflight.FromContext(ctx)
			return slot != nil && slot.Key() == acme
		},
	}))
	front := newSite(t, func(c served) error { return behind.do(c.ctx, serverStreaming) }, limitServer(r.Registry, named), nil)
	require.NoError(t, front.do(t.Context(), unary))
	r.settled(t, 1)
}

// A fakeStream is a stream without a connection. Each of its methods calls f.
type fakeStream struct {
	grpc.ClientStream

	f func() error
}

func (s fakeStream) Header() (metadata.MD, error) { return nil, s.f() }
func (s fakeStream) SendMsg(any) error            { return s.f() }
func (s fakeStream) RecvMsg(any) error            { return s.f() }

// openFake opens a stream that newStream makes, behind an interceptor.
func openFake( //nolint:ireturn // as interceptors do
	t *testing.T, r registry, desc grpc.StreamDesc, newStream func() (grpc.ClientStream, error),
) (grpc.ClientStream, error) {
	t.Helper()
	return grpcinflight.StreamClientInterceptor(r.Registry, named)(t.Context(), &desc, nil, "/m",
		func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return newStream()
		})
}

func panics() error { panic("boom") }

func exits() error {
	runtime.Goexit()
	return nil
}

// A panic or an exit in gRPC, a codec or an interceptor further in ends the slot.
func TestClientPanicAndGoexit(t *testing.T) {
	r := newRegistry(t, 1)
	open := func(newStream, later func() error) grpc.ClientStream {
		s, _ := openFake(t, r, grpc.StreamDesc{ServerStreams: true}, func() (grpc.ClientStream, error) {
			return fakeStream{f: later}, newStream()
		})
		return s
	}
	steps := []func(f func() error){
		func(f func() error) {
			_ = grpcinflight.UnaryClientInterceptor(r.Registry, named)(t.Context(), "/m", nil, nil, nil,
				func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return f() })
		},
		func(f func() error) { open(f, nothing) },
		func(f func() error) { _, _ = open(nothing, f).Header() },
		func(f func() error) { _ = open(nothing, f).SendMsg(nil) },
		func(f func() error) { _ = open(nothing, f).RecvMsg(nil) },
	}
	for i, step := range steps {
		require.PanicsWithValue(t, "boom", func() { step(panics) })
		r.settled(t, uint64(2*i+1))
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			step(exits)
		}()
		receive(t, exited)
		r.settled(t, uint64(2*i+2))
	}
}

// Which errors end a stream is as the documentation of grpc.ClientConn.NewStream says.
func TestClientErrorsThatEnd(t *testing.T) {
	r := newRegistry(t, 1)
	failed := errors.New("failed")
	open := func(newStream, later error) (grpc.ClientStream, error) {
		return openFake(t, r, grpc.StreamDesc{ServerStreams: true}, func() (grpc.ClientStream, error) {
			return fakeStream{f: func() error { return later }}, newStream
		})
	}
	_, err := open(failed, nil)
	require.ErrorIs(t, err, failed)
	r.settled(t, 1)
	for i, c := range []struct {
		step func(grpc.ClientStream) error
		err  error
		left int
	}{
		{func(s grpc.ClientStream) error { return s.RecvMsg(nil) }, nil, 1},
		{func(s grpc.ClientStream) error { return s.RecvMsg(nil) }, failed, 0},
		{func(s grpc.ClientStream) error { return s.RecvMsg(nil) }, io.EOF, 0},
		{func(s grpc.ClientStream) error { return s.SendMsg(nil) }, nil, 1},
		{func(s grpc.ClientStream) error { return s.SendMsg(nil) }, failed, 0},
		{func(s grpc.ClientStream) error { return s.SendMsg(nil) }, io.EOF, 1},
		{func(s grpc.ClientStream) error { _, err := s.Header(); return err }, nil, 1},
		{func(s grpc.ClientStream) error { _, err := s.Header(); return err }, failed, 0},
		{func(s grpc.ClientStream) error { _, err := s.Header(); return err }, io.EOF, 1},
	} {
		s, err := open(nil, c.err)
		require.NoError(t, err)
		r.is(t, 1)
		require.Equal(t, c.err, c.step(s))
		require.Equal(t, c.left, r.InUse(acme), "%d", i)
		for _, left := range r.Slots(0) {
			r.Cancel(left.ID, nil)
		}
		r.becomes(t, 0)
	}
}

// A single response ends the call also if nobody asks for the status. Who does gets it, and the stream is not read again.
func TestClientSingleResponse(t *testing.T) {
	broken := errors.New("broken off")
	for _, c := range []struct{ status, first, next error }{
		{io.EOF, nil, io.EOF},
		{broken, broken, broken},
		{nil, errSecond, errSecond},
	} {
		r := newRegistry(t, 1)
		results := []error{nil, c.status, errors.New("read again")}
		s, err := openFake(t, r, grpc.StreamDesc{ClientStreams: true}, func() (grpc.ClientStream, error) {
			return fakeStream{f: func() error {
				err := results[0]
				results = results[1:]
				return err
			}}, nil
		})
		require.NoError(t, err)
		r.is(t, 1)
		require.Equal(t, c.first, s.RecvMsg(nil))
		r.is(t, 0)
		require.Equal(t, c.next, s.RecvMsg(nil))
		r.settled(t, 1)
	}
}

var errSecond = status.Error(codes.Internal, "grpcinflight: a second response where there should be one")
