package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/inflight-go/inflight/metrics"
)

// An operator serves what is for those who run the gateway. It names customers and asks nobody for a password, so clients
// must not reach it. By default it is at the gateway's own address if that is a loopback address, which nobody reaches
// from elsewhere, and at no address if it is not. -operator-addr gives it an address of its own, for an internal network;
// that is also what a gateway wants that listens on loopback behind a proxy, or the proxy would pass it on.
type operator struct {
	handler  http.Handler
	listener net.Listener // its own, nil if it shares the gateway's or is nowhere
	base     string       // its URL, "" if it is nowhere
}

// operatorPaths are where an operator has something to say.
var operatorPaths = []string{"/metrics"}

// newOperator makes the operator of g and finds it a place.
func newOperator(ctx context.Context, g *gateway, addr string, gatewayAddr net.Addr) (*operator, error) {
	o := &operator{handler: g.operatorRoutes()}
	if addr != "" {
		var err error
		if o.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err != nil {
			return nil, fmt.Errorf("cannot listen on -operator-addr %s: %w", addr, err)
		}
		o.base = urlOf(o.listener.Addr())
		return o, nil
	}
	if tcp, ok := gatewayAddr.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		o.base = urlOf(gatewayAddr)
		for _, path := range operatorPaths {
			g.mux.Handle(path, o.handler)
		}
	}
	return o, nil
}

func (g *gateway) operatorRoutes() http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(
		metrics.NewCollector(g.registry),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}))
	return mux
}

// serve answers at an address of its own, if there is one, until ctx ends.
func (o *operator) serve(ctx context.Context, log *slog.Logger) {
	if o.listener == nil {
		return
	}
	server := &http.Server{
		Handler:           o.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(o.listener); !errors.Is(err, http.ErrServerClosed) {
		log.Error("operator", "err", err)
	}
}
