package grpcinflight_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/grpcinflight"
)

// A server that lets each organisation have one stream at a time, and a client that wants two.
func Example() {
	reg, err := inflight.New(inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
	if err != nil {
		panic(err)
	}
	defer func() { _ = reg.Close() }()
	limited := grpcinflight.Config{
		Key: func(_ context.Context, method string, md metadata.MD) (inflight.Key, error) {
			org := md.Get("org") // from what authenticated the call, in real life
			if len(org) != 1 {
				return inflight.Key{}, errors.New("no org")
			}
			return inflight.Key{Org: org[0], Model: method}, nil
		},
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcinflight.UnaryServerInterceptor(reg, limited)),
		grpc.ChainStreamInterceptor(grpcinflight.StreamServerInterceptor(reg, limited)),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	watch := func(org string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "org", org)
		stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return status.Code(err)
	}
	fmt.Println("acme:  ", watch("acme")) // goes on until the connection is closed
	fmt.Println("acme:  ", watch("acme"))
	fmt.Println("globex:", watch("globex"))
	// Output:
	// acme:   OK
	// acme:   ResourceExhausted
	// globex: OK
}

// A client that makes no more than one call at a time: what is too much is never sent.
func ExampleUnaryClientInterceptor() {
	reg, err := inflight.New(inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
	if err != nil {
		panic(err)
	}
	defer func() { _ = reg.Close() }()
	key := inflight.Key{Org: "me", Model: "provider"}
	conn, err := grpc.NewClient("dns:///provider.example",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcinflight.UnaryClientInterceptor(reg, grpcinflight.Config{
			Key: func(context.Context, string, metadata.MD) (inflight.Key, error) { return key, nil },
		})))
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()

	slot, err := reg.TryAcquire(key) // stands for another call
	if err != nil {
		panic(err)
	}
	defer slot.Release()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(errors.Is(err, inflight.ErrLimit), status.Code(err))
	// Output: true ResourceExhausted
}
