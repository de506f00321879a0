// Package grpcinflight caps what each customer has in flight over gRPC: interceptors that take a slot of an
// inflight.Registry for each call, on a server or on a client.
//
//	limited := grpcinflight.Config{
//		Key: func(_ context.Context, method string, md metadata.MD) (inflight.Key, error) {
//			return inflight.Key{Org: orgOf(md), Model: method}, nil
//		},
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcinflight.UnaryServerInterceptor(reg, limited)),
//		grpc.ChainStreamInterceptor(grpcinflight.StreamServerInterceptor(reg, limited)),
//	)
//
// A call holds its slot until it has ended: on a server until the handler returns, on a client until the status of the
// call is there. A stream counts once, for as long as it runs.
//
// # Refusals
//
// A call that is not admitted fails with a status that says nothing but the kind of the refusal, the same on both sides:
//
//   - ResourceExhausted if the limit of a key, an org or a model is full,
//   - Unavailable if the limit on the total is full, or the registry is closed,
//   - InvalidArgument if Config.Key failed,
//   - Canceled or DeadlineExceeded if the call's context ended while it waited,
//   - Internal for anything else, such as a negative weight.
//
// The first two carry an errdetails.RetryInfo where the same call may be admitted later, which a weight above the limit
// never is. Its delay is that of an error in the chain that has a method RetryAfter() time.Duration, else 1 s. A server
// tells gRPC's own retries the same in the trailer grpc-retry-pushback-ms, so a client with a retry policy for the code
// waits as long, and does not retry what is too heavy.
//
// The reason stays in the error for those on this side of the wire: errors.Is(err, inflight.ErrLimit) and errors.As with
// *inflight.LimitError work on what a client interceptor returns, and, for an interceptor further out that logs, on what
// a server interceptor returns. Its text is that of the status.
//
// # What it is not
//
// It does not count bytes: on a server the last message may still be in the transport's buffers when the handler has
// returned and the slot is free. It does not count connections; see grpc.MaxConcurrentStreams for a limit on each.
package grpcinflight
