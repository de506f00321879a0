package e2e_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

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
				require.NoError(t, conn.Invoke(bounded(t), echoRPC, in, in))
				uses(t, reg, 0)
			}

			streams := make([]grpc.ClientStream, 10)
			for i := range streams {
				streams[i] = begin(bounded(t), t, conn)
				require.Equal(t, i+1, reg.InUse(acme))
			}
			err := conn.Invoke(bounded(t), echoRPC, in, in)
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

			ctx, cancel := context.WithCancel(bounded(t))
			stream := begin(ctx, t, conn)
			require.Equal(t, 1, reg.InUse(acme))
			cancel()
			require.Equal(t, codes.Canceled, status.Code(stream.RecvMsg(in)))
			uses(t, reg, 0)

			ctx, cancel = context.WithTimeout(bounded(t), 100*time.Millisecond)
			defer cancel()
			stream = begin(ctx, t, conn)
			require.Equal(t, codes.DeadlineExceeded, status.Code(stream.RecvMsg(in)))
			uses(t, reg, 0)

			stream = begin(bounded(t), t, conn)
			c.next <- errAborted
			require.Equal(t, codes.Aborted, status.Code(stream.RecvMsg(in)))
			uses(t, reg, 0)

			stream = begin(bounded(t), t, conn)
			require.True(t, reg.Cancel(reg.Slots(1)[0].ID, nil))
			operatorsEnd(t, stream)
			uses(t, reg, 0)

			stream = begin(bounded(t), t, conn)
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
			stream, err := conn.NewStream(bounded(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, talk)
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
	stream := begin(bounded(t), t, conn)
	in := new(wrapperspb.StringValue)
	require.Equal(t, codes.ResourceExhausted, status.Code(conn.Invoke(bounded(t), echoRPC, in, in)))
	require.Equal(t, 1, reg.InUse(acme))
	c.next <- nil
	require.NoError(t, stream.RecvMsg(in))
	require.ErrorIs(t, stream.RecvMsg(in), io.EOF)
}
