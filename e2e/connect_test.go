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
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/inflight-go/inflight"
)

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
				require.NoError(t, s.hello(bounded(t)))
				s.use(t, 0)
			}

			stream := s.begin(bounded(t), t)
			s.next <- nil
			require.True(t, stream.Receive())
			require.Equal(t, "2", stream.Msg().GetValue())
			require.False(t, stream.Receive())
			require.NoError(t, stream.Err())
			s.use(t, 0) // before Close
			require.NoError(t, stream.Close())

			stream = s.begin(bounded(t), t)
			s.next <- errAborted
			require.False(t, stream.Receive())
			require.Equal(t, connect.CodeAborted, connect.CodeOf(stream.Err()))
			_ = stream.Close()
			s.use(t, 0)

			ctx, cancel := context.WithCancel(bounded(t))
			stream = s.begin(ctx, t)
			cancel()
			uses(t, s.client, 0) // before anybody reads or closes
			require.False(t, stream.Receive())
			require.Equal(t, connect.CodeCanceled, connect.CodeOf(stream.Err()))
			_ = stream.Close()
			s.use(t, 0)

			ctx, cancel = context.WithTimeout(bounded(t), 200*time.Millisecond)
			defer cancel()
			stream = s.begin(ctx, t)
			require.False(t, stream.Receive())
			require.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(stream.Err()))
			_ = stream.Close()
			s.use(t, 0)

			for _, operator := range []*inflight.Registry{s.server, s.client} {
				stream = s.begin(bounded(t), t)
				require.True(t, operator.Cancel(operator.Slots(1)[0].ID, nil))
				require.False(t, stream.Receive())
				require.Error(t, stream.Err())
				require.NotEqual(t, connect.CodeDeadlineExceeded, connect.CodeOf(stream.Err()), "it hung")
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
			stream := s.begin(bounded(t), t)
			err := s.hello(bounded(t))
			require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err), "%v", err)
			require.NotErrorIs(t, err, inflight.ErrLimit)
			uses(t, s.client, 1)
			require.NoError(t, stream.Close())
			s.use(t, 0)

			s = open(t, 2, 1)
			stream = s.begin(bounded(t), t)
			err = s.hello(bounded(t))
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
			stream := s.talk.CallBidiStream(bounded(t))
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
