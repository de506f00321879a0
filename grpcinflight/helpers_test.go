package grpcinflight_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/grpcinflight"
	"github.com/inflight-go/inflight/slottest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The key of most tests, and what names it.
var acme = inflight.Key{Org: "acme", Model: "glm"}

func asAcme(context.Context, string, metadata.MD) (inflight.Key, error) { return acme, nil }

var named = grpcinflight.Config{Key: asAcme}

// A registry is one for tests, without a sweeper, that must be empty at the end.
type registry struct{ *inflight.Registry }

func newRegistry(t *testing.T, limit int) registry {
	t.Helper()
	return newRegistryOf(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: limit})})
}

func newRegistryOf(t *testing.T, cfg inflight.Config) registry {
	t.Helper()
	return registry{slottest.New(t, cfg)}
}

// is asserts that acme has n in use.
func (r registry) is(t *testing.T, n int) {
	t.Helper()
	require.Equal(t, n, r.InUse(acme))
}

// becomes waits until acme has n in use.
func (r registry) becomes(t *testing.T, n int) {
	t.Helper()
	slottest.WaitInUse(t, r.Registry, acme, n)
}

// awaits waits until n acquires wait for acme.
func (r registry) awaits(t *testing.T, n int) {
	t.Helper()
	slottest.WaitWaiters(t, r.Registry, acme, n)
}

// settled asserts that nobody holds or waits, and that each of n slots was released, once.
func (r registry) settled(t *testing.T, n uint64) {
	t.Helper()
	s := r.Stats()
	require.Equal(t, [...]int{0, 0, 0, 0}, [...]int{s.Holders, s.InUse, s.Keys, s.Waiters})
	require.Equal(t, [...]uint64{n, n}, [...]uint64{s.Admitted, s.Released})
}

// hold takes a slot of acme.
func (r registry) hold(t *testing.T) *inflight.Slot {
	t.Helper()
	slot, err := r.TryAcquire(acme)
	require.NoError(t, err)
	return slot
}

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, time.Millisecond)
}

// receive waits for a value that another goroutine is about to send.
func receive[T any](t *testing.T, c <-chan T) T { //nolint:ireturn // it is generic
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// A served call is what a handler sees of a call of any kind. Where there is a single request or response, recv gives
// io.EOF the second time and send does nothing: the response goes out when the handler returns.
type served struct {
	ctx  context.Context //nolint:containedctx // what handlers get
	recv func() error
	send func() error
}

// A service answers calls of all kinds by one function.
type service struct {
	testgrpc.UnimplementedTestServiceServer

	serve func(served) error
}

func once() func() error {
	var err error
	return func() error {
		defer func() { err = io.EOF }()
		return err
	}
}

func nothing() error { return nil }

func (s *service) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if err := s.serve(served{ctx, once(), nothing}); err != nil {
		return nil, err
	}
	return &testgrpc.SimpleResponse{}, nil
}

func (s *service) StreamingInputCall(stream testgrpc.TestService_StreamingInputCallServer) error {
	recv := func() error {
		_, err := stream.Recv()
		return err
	}
	if err := s.serve(served{stream.Context(), recv, nothing}); err != nil {
		return err
	}
	return stream.SendAndClose(&testgrpc.StreamingInputCallResponse{})
}

func (s *service) StreamingOutputCall(
	_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer,
) error {
	send := func() error { return stream.Send(&testgrpc.StreamingOutputCallResponse{}) }
	return s.serve(served{stream.Context(), once(), send})
}

func (s *service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	recv := func() error {
		_, err := stream.Recv()
		return err
	}
	send := func() error { return stream.Send(&testgrpc.StreamingOutputCallResponse{}) }
	return s.serve(served{stream.Context(), recv, send})
}

// A call is what a client sees of a call of any kind. Where there is a single response, recv ends the call, with io.EOF
// if that went well. A unary call is made by recv.
type call struct {
	send      func() error
	closeSend func() error
	recv      func() error
}

// finish ends the call regularly and returns its status.
func (c call) finish() error {
	if err := c.closeSend(); err != nil {
		return err
	}
	for {
		if err := c.recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// A kind is one of the four kinds of calls.
type kind struct {
	name string
	open func(context.Context, testgrpc.TestServiceClient) (call, error)
}

func eofIfNil(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

var (
	unary = kind{"unary", func(ctx context.Context, client testgrpc.TestServiceClient) (call, error) {
		return call{nothing, nothing, func() error {
			_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
			return eofIfNil(err)
		}}, nil
	}}
	clientStreaming = kind{"client streaming", func(ctx context.Context, client testgrpc.TestServiceClient) (call, error) {
		s, err := client.StreamingInputCall(ctx)
		if err != nil {
			return call{}, err
		}
		send := func() error { return s.Send(&testgrpc.StreamingInputCallRequest{}) }
		return call{send, s.CloseSend, func() error {
			_, err := s.CloseAndRecv()
			return eofIfNil(err)
		}}, nil
	}}
	serverStreaming = kind{"server streaming", func(ctx context.Context, client testgrpc.TestServiceClient) (call, error) {
		s, err := client.StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{})
		if err != nil {
			return call{}, err
		}
		return call{nothing, s.CloseSend, func() error {
			_, err := s.Recv()
			return err
		}}, nil
	}}
	bidirectional = kind{"bidirectional", func(ctx context.Context, client testgrpc.TestServiceClient) (call, error) {
		s, err := client.FullDuplexCall(ctx)
		if err != nil {
			return call{}, err
		}
		send := func() error { return s.Send(&testgrpc.StreamingOutputCallRequest{}) }
		return call{send, s.CloseSend, func() error {
			_, err := s.Recv()
			return err
		}}, nil
	}}
)

var (
	streams = []kind{clientStreaming, serverStreaming, bidirectional}
	kinds   = append([]kind{unary}, streams...)
)

// A site is a server with a client, and what is between.
type site struct {
	testgrpc.TestServiceClient

	conn *grpc.ClientConn
}

// limitServer makes the options of a server that limits all calls.
func limitServer(a inflight.Acquirer, cfg grpcinflight.Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpcinflight.UnaryServerInterceptor(a, cfg)),
		grpc.ChainStreamInterceptor(grpcinflight.StreamServerInterceptor(a, cfg)),
	}
}

// limitClient makes the options of a client that limits all calls.
func limitClient(a inflight.Acquirer, cfg grpcinflight.Config) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(grpcinflight.UnaryClientInterceptor(a, cfg)),
		grpc.WithChainStreamInterceptor(grpcinflight.StreamClientInterceptor(a, cfg)),
	}
}

// recovered are the options of a server that answers a panic with the status Internal, as many do.
func recovered() []grpc.ServerOption {
	answer := func(err *error) {
		if v := recover(); v != nil {
			*err = status.Error(codes.Internal, fmt.Sprint(v))
		}
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (_ any, err error) {
			defer answer(&err)
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(
			srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
		) (err error) {
			defer answer(&err)
			return next(srv, s)
		}),
	}
}

// newSite serves in memory, newLoopback over a socket.
func newSite(t *testing.T, serve func(served) error, server []grpc.ServerOption, client []grpc.DialOption) site {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	client = append(client, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}))
	return newSiteAt(t, listener, "passthrough:///bufconn", serve, server, client)
}

func newLoopback(t *testing.T, serve func(served) error, server []grpc.ServerOption, client []grpc.DialOption) site {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return newSiteAt(t, listener, listener.Addr().String(), serve, server, client)
}

func newSiteAt(
	t *testing.T, listener net.Listener, address string, serve func(served) error, server []grpc.ServerOption,
	client []grpc.DialOption,
) site {
	t.Helper()
	s := grpc.NewServer(append(server, grpc.WaitForHandlers(true))...)
	testgrpc.RegisterTestServiceServer(s, &service{serve: serve})
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
	conn, err := grpc.NewClient(address, append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		if err := <-failed; !errors.Is(err, grpc.ErrServerStopped) { // before it had begun
			require.NoError(t, err)
		}
	})
	return site{testgrpc.NewTestServiceClient(conn), conn}
}

// start makes a call and ends it regularly, in another goroutine.
func (s site) start(ctx context.Context, k kind) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.do(ctx, k) }()
	return done
}

// do makes a call and ends it regularly.
func (s site) do(ctx context.Context, k kind) error {
	c, err := k.open(ctx, s)
	if err != nil {
		return err
	}
	_ = c.send() // the status tells
	return c.finish()
}
