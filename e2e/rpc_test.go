package e2e_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/inflight-go/inflight"
)

// The service, in both worlds. Echo is unary. Talk sends a message for each that the client sends, and ends when the
// client says so. Count sends one message and then waits: until told to go on, when it sends another and ends, or until
// told to fail, or until its context ends.
const (
	service = "inflight.e2e.Service"
	echoRPC = "/" + service + "/Echo"
	talk    = "/" + service + "/Talk"
	count   = "/" + service + "/Count"
)

var errAborted = errors.New("aborted on demand")

// A counter is what Count waits for.
type counter struct {
	next chan error // nil: go on
}

// run is Count; send is how either world sends.
func (c *counter) run(ctx context.Context, send func(string) error) error {
	if err := send("1"); err != nil {
		return err
	}
	select {
	case err := <-c.next:
		if err != nil {
			return err
		}
		return send("2")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// grpcServer has its service description by hand, for want of generated code.
func grpcServer(c *counter) *grpc.Server {
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Echo",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				in := new(wrapperspb.StringValue)
				return in, decode(in)
			},
		}},
		Streams: []grpc.StreamDesc{{
			StreamName: "Talk", ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				for {
					in := new(wrapperspb.StringValue)
					if err := s.RecvMsg(in); err != nil {
						return ignoreEOF(err)
					}
					if err := s.SendMsg(in); err != nil {
						return err
					}
				}
			},
		}, {
			StreamName: "Count", ServerStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
					return err
				}
				err := c.run(s.Context(), func(text string) error { return s.SendMsg(wrapperspb.String(text)) })
				if errors.Is(err, errAborted) {
					return status.Error(codes.Aborted, err.Error())
				}
				return err
			},
		}},
	}, nil)
	return s
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// grpcSite serves a counter by grpc-go, behind the middleware, over HTTP/2 of net/http.
func grpcSite(t *testing.T, over wire, limit int, refuse func(http.ResponseWriter, *http.Request, error)) (
	*grpc.ClientConn, *inflight.Registry, *counter,
) {
	t.Helper()
	c := &counter{next: make(chan error)}
	reg := newRegistry(t, inflight.Limits{Key: limit})
	rpc := grpcServer(c)
	s := serve(t, over, inflight.Middleware(reg, inflight.MiddlewareConfig{Key: always(acme), Reject: refuse})(rpc))
	creds := insecure.NewCredentials()
	if over == tls2 {
		creds = credentials.NewTLS(rootsOf(s))
	}
	conn, err := grpc.NewClient("passthrough:///"+s.Listener.Addr().String(), grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		rpc.Stop()
	})
	return conn, reg, c
}

var (
	http2Wires = []wire{tls2, h2c}
	allWires   = []wire{plain, tls1, tls2, h2c}
)

// begin begins a stream of Count and receives its first message.
func begin(ctx context.Context, t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, count)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(wrapperspb.String("")))
	require.NoError(t, stream.CloseSend())
	in := new(wrapperspb.StringValue)
	require.NoError(t, stream.RecvMsg(in))
	require.Equal(t, "1", in.GetValue())
	return stream
}

func TestGRPCHoldsOneSlotPerStream(t *testing.T) {
	for _, over := range http2Wires {
		t.Run(string(over), func(t *testing.T) {
			conn, reg, c := grpcSite(t, over, 10, nil)
			in := wrapperspb.String("Hello")
			for range 20 {
				require.NoError(t, conn.Invoke(t.Context(), echoRPC, in, in))
				uses(t, reg, 0)
			}

			streams := make([]grpc.ClientStream, 10)
			for i := range streams {
				streams[i] = begin(t.Context(), t, conn)
				require.Equal(t, i+1, reg.InUse(acme))
			}
			err := conn.Invoke(t.Context(), echoRPC, in, in)
			require.Equal(t, codes.Unavailable, status.Code(err), "gRPC's reading of HTTP's 429: %v", err)
			for range streams {
				c.next <- nil
			}
			for _, stream := range streams {
				require.NoError(t, stream.RecvMsg(in))
				require.Equal(t, "2", in.GetValue())
				require.ErrorIs(t, stream.RecvMsg(in), io.EOF)
			}
			uses(t, reg, 0)
		})
	}
}

// However a stream ends, its slot ends with it. The limit is 1.
func TestGRPCStreamEnds(t *testing.T) {
	for _, over := range http2Wires {
		t.Run(string(over), func(t *testing.T) {
			conn, reg, c := grpcSite(t, over, 1, nil)
			in := new(wrapperspb.StringValue)

			ctx, cancel := context.WithCancel(t.Context())
			stream := begin(ctx, t, conn)
			require.Equal(t, 1, reg.InUse(acme))
			cancel()
			require.Equal(t, codes.Canceled, status.Code(stream.RecvMsg(in)))
			uses(t, reg, 0)

			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			stream = begin(ctx, t, conn)
			require.Equal(t, codes.DeadlineExceeded, status.Code(stream.RecvMsg(in)))
			uses(t, reg, 0)

			stream = begin(t.Context(), t, conn)
			c.next <- errAborted
			require.Equal(t, codes.Aborted, status.Code(stream.RecvMsg(in)))
			uses(t, reg, 0)

			stream = begin(t.Context(), t, conn)
			require.True(t, reg.Cancel(reg.Slots(1)[0].ID, nil))
			operatorsEnd(t, stream)
			uses(t, reg, 0)

			stream = begin(t.Context(), t, conn)
			require.True(t, reg.Evict(reg.Slots(1)[0].ID))
			require.Zero(t, reg.InUse(acme))
			operatorsEnd(t, stream)
		})
	}
}

// operatorsEnd checks that a stream ends by the end of the handler's context. Whether grpc-go still sends the handler's
// status, or ends the stream without one, is up to it.
func operatorsEnd(t *testing.T, stream grpc.ClientStream) {
	t.Helper()
	err := stream.RecvMsg(new(wrapperspb.StringValue))
	require.Contains(t, []codes.Code{codes.Canceled, codes.Internal}, status.Code(err), "%v", err)
}

// A stream in both directions is one slot, from its first message until both sides have ended.
func TestGRPCBothDirections(t *testing.T) {
	for _, over := range http2Wires {
		t.Run(string(over), func(t *testing.T) {
			conn, reg, _ := grpcSite(t, over, 1, nil)
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, talk)
			require.NoError(t, err)
			in := new(wrapperspb.StringValue)
			for _, text := range []string{"a", "b", "c"} {
				require.NoError(t, stream.SendMsg(wrapperspb.String(text)))
				require.NoError(t, stream.RecvMsg(in))
				require.Equal(t, text, in.GetValue())
				require.Equal(t, 1, reg.InUse(acme))
			}
			require.NoError(t, stream.CloseSend())
			require.ErrorIs(t, stream.RecvMsg(in), io.EOF)
			uses(t, reg, 0)
		})
	}
}

// A Reject function can refuse in the words of gRPC.
func TestGRPCRefusalInItsOwnWords(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "8") // codes.ResourceExhausted
		w.Header().Set("Grpc-Message", "too many requests in flight")
	}
	conn, reg, c := grpcSite(t, tls2, 1, refuse)
	stream := begin(t.Context(), t, conn)
	in := new(wrapperspb.StringValue)
	require.Equal(t, codes.ResourceExhausted, status.Code(conn.Invoke(t.Context(), echoRPC, in, in)))
	require.Equal(t, 1, reg.InUse(acme))
	c.next <- nil
	require.NoError(t, stream.RecvMsg(in))
	require.ErrorIs(t, stream.RecvMsg(in), io.EOF)
}

// A dialect is a protocol that connect-go speaks.
type dialect struct {
	name       string
	opts       []connect.ClientOption
	needsHTTP2 bool
}

var dialects = []dialect{
	{"connect", nil, false},
	{"gRPC", []connect.ClientOption{connect.WithGRPC()}, true},
	{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()}, false},
}

// A connectSite serves a counter by connect-go behind the middleware, and has clients over the transport.
type connectSite struct {
	*counter

	server, client *inflight.Registry
	echo           *connect.Client[wrapperspb.StringValue, wrapperspb.StringValue]
	count          *connect.Client[wrapperspb.StringValue, wrapperspb.StringValue]
	talk           *connect.Client[wrapperspb.StringValue, wrapperspb.StringValue]
}

func connectHandler(c *counter) http.Handler {
	type text = wrapperspb.StringValue
	mux := http.NewServeMux()
	mux.Handle(echoRPC, connect.NewUnaryHandler(echoRPC,
		func(_ context.Context, in *connect.Request[text]) (*connect.Response[text], error) {
			return connect.NewResponse(in.Msg), nil
		}))
	mux.Handle(count, connect.NewServerStreamHandler(count,
		func(ctx context.Context, _ *connect.Request[text], s *connect.ServerStream[text]) error {
			err := c.run(ctx, func(text string) error { return s.Send(wrapperspb.String(text)) })
			if errors.Is(err, errAborted) {
				return connect.NewError(connect.CodeAborted, err)
			}
			return err
		}))
	mux.Handle(talk, connect.NewBidiStreamHandler(talk,
		func(_ context.Context, s *connect.BidiStream[text, text]) error {
			for {
				in, err := s.Receive()
				if err != nil {
					return ignoreEOF(err)
				}
				if err := s.Send(in); err != nil {
					return err
				}
			}
		}))
	return mux
}

// inEach gives each dialect on each of these wires that it can use, as a function that opens a site with these limits at
// the server and the client.
func inEach(wires []wire) iter.Seq2[string, func(t *testing.T, server, client int) *connectSite] {
	return func(yield func(string, func(t *testing.T, server, client int) *connectSite) bool) {
		for _, d := range dialects {
			for _, over := range wires {
				if d.needsHTTP2 && !slices.Contains(http2Wires, over) {
					continue
				}
				open := func(t *testing.T, server, client int) *connectSite {
					t.Helper()
					return d.open(t, over, server, client)
				}
				if !yield(d.name+"/"+string(over), open) {
					return
				}
			}
		}
	}
}

func (d dialect) open(t *testing.T, over wire, server, client int) *connectSite {
	t.Helper()
	s := &connectSite{
		counter: &counter{next: make(chan error)},
		server:  newRegistry(t, inflight.Limits{Key: server}), client: newRegistry(t, inflight.Limits{Key: client}),
	}
	mw := inflight.Middleware(s.server, inflight.MiddlewareConfig{Key: always(acme)})
	srv := serve(t, over, mw(connectHandler(s.counter)))
	c := limitedClient(srv, s.client)
	s.echo = connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](c, srv.URL+echoRPC, d.opts...)
	s.count = connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](c, srv.URL+count, d.opts...)
	s.talk = connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](c, srv.URL+talk, d.opts...)
	return s
}

// limitedClient is the client of a server with a transport that limits.
func limitedClient(s *httptest.Server, reg *inflight.Registry) *http.Client {
	return &http.Client{Transport: inflight.NewTransport(s.Client().Transport, reg, inflight.TransportConfig{Key: always(acme)})}
}

// use waits until so many slots are in use at both ends.
func (s *connectSite) use(t *testing.T, n int) {
	t.Helper()
	uses(t, s.client, n)
	uses(t, s.server, n)
}

// begin begins a stream of Count and receives its first message.
func (s *connectSite) begin(ctx context.Context, t *testing.T) *connect.ServerStreamForClient[wrapperspb.StringValue] {
	t.Helper()
	stream, err := s.count.CallServerStream(ctx, connect.NewRequest(wrapperspb.String("")))
	require.NoError(t, err)
	require.True(t, stream.Receive(), "%v", stream.Err())
	require.Equal(t, "1", stream.Msg().GetValue())
	require.Equal(t, 1, s.client.InUse(acme))
	require.Equal(t, 1, s.server.InUse(acme))
	return stream
}

func (s *connectSite) hello(ctx context.Context) error {
	_, err := s.echo.CallUnary(ctx, connect.NewRequest(wrapperspb.String("Hello")))
	return err
}

// However a stream ends, its slots at both ends end with it. The limits are 1.
func TestConnectStreamEnds(t *testing.T) {
	for name, open := range inEach(allWires) {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1, 1)
			for range 3 {
				require.NoError(t, s.hello(t.Context()))
				s.use(t, 0)
			}

			stream := s.begin(t.Context(), t)
			s.next <- nil
			require.True(t, stream.Receive())
			require.Equal(t, "2", stream.Msg().GetValue())
			require.False(t, stream.Receive())
			require.NoError(t, stream.Err())
			s.use(t, 0) // before Close
			require.NoError(t, stream.Close())

			stream = s.begin(t.Context(), t)
			s.next <- errAborted
			require.False(t, stream.Receive())
			require.Equal(t, connect.CodeAborted, connect.CodeOf(stream.Err()))
			_ = stream.Close()
			s.use(t, 0)

			ctx, cancel := context.WithCancel(t.Context())
			stream = s.begin(ctx, t)
			cancel()
			uses(t, s.client, 0) // before anybody reads or closes
			require.False(t, stream.Receive())
			require.Equal(t, connect.CodeCanceled, connect.CodeOf(stream.Err()))
			_ = stream.Close()
			s.use(t, 0)

			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			stream = s.begin(ctx, t)
			require.False(t, stream.Receive())
			require.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(stream.Err()))
			_ = stream.Close()
			s.use(t, 0)

			for _, operator := range []*inflight.Registry{s.server, s.client} {
				stream = s.begin(t.Context(), t)
				require.True(t, operator.Cancel(operator.Slots(1)[0].ID, nil))
				require.False(t, stream.Receive())
				require.Error(t, stream.Err())
				_ = stream.Close()
				s.use(t, 0)
			}
		})
	}
}

// A refusal arrives as a connect error, with the transport's own still to be found in it.
func TestConnectRefusal(t *testing.T) {
	for name, open := range inEach(allWires) {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1, 2)
			stream := s.begin(t.Context(), t)
			err := s.hello(t.Context())
			require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err), "%v", err)
			require.NotErrorIs(t, err, inflight.ErrLimit)
			uses(t, s.client, 1)
			require.NoError(t, stream.Close())
			s.use(t, 0)

			s = open(t, 2, 1)
			stream = s.begin(t.Context(), t)
			err = s.hello(t.Context())
			require.ErrorIs(t, err, inflight.ErrLimit)
			require.Equal(t, 1, s.server.InUse(acme), "it never got there")
			require.NoError(t, stream.Close())
			s.use(t, 0)
		})
	}
}

// A stream in both directions is one slot at each end, until both have ended it.
func TestConnectBothDirections(t *testing.T) {
	for name, open := range inEach(http2Wires) {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1, 1)
			stream := s.talk.CallBidiStream(t.Context())
			for _, text := range []string{"a", "b", "c"} {
				require.NoError(t, stream.Send(wrapperspb.String(text)))
				in, err := stream.Receive()
				require.NoError(t, err)
				require.Equal(t, text, in.GetValue())
				require.Equal(t, 1, s.client.InUse(acme))
				require.Equal(t, 1, s.server.InUse(acme))
			}
			require.NoError(t, stream.CloseRequest())
			_, err := stream.Receive()
			require.ErrorIs(t, err, io.EOF)
			s.use(t, 0)
			require.NoError(t, stream.CloseResponse())
		})
	}
}
