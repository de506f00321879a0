package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/inflight-go/inflight/console"
	"github.com/inflight-go/inflight/fleet/fleetmetrics"
	"github.com/inflight-go/inflight/metrics"
)

// An operator serves what is for those who run the gateway. It names customers, can cancel what they do, and asks nobody
// for a password, so clients must not reach it. By default it is at the gateway's own address if that is a loopback
// address, which nobody reaches from elsewhere, and at no address if it is not. -operator-addr gives it an address of its
// own, for an internal network; that is also what a gateway wants that listens on loopback behind a proxy, or the proxy
// would pass it on.
type operator struct {
	handler  http.Handler
	listener net.Listener // its own, nil if it shares the gateway's or is nowhere
	base     string       // its URL, "" if it is nowhere
}

// operatorPaths are where an operator has something to say.
var operatorPaths = []string{"/metrics", consolePath}

const consolePath = "/debug/inflight/"

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
	if g.shared != nil {
		all.MustRegister(fleetmetrics.NewCollector(g.shared.fleet))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}))
	mux.Handle(consolePath, byAddress(console.Handler(g.registry, console.Config{Admin: true, Table: g.table, Logger: g.log})))
	return mux
}

// byAddress refuses requests that name the server otherwise than by its address. A browser may be on the operator's
// machine and show the page of somebody who has had a name of theirs point to this address (DNS rebinding): to the
// browser that page and the console are one site.
func byAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
			http.Error(w, "Use the address of the console, or localhost, and not a name.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
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
