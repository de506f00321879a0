// Command gateway is an OpenAI-compatible streaming gateway that caps what each organisation has in flight on each
// model. It shows how inflight is meant to be used in a server: a key for each request (keys.go), limits that change
// while it runs, in a file (limits.go) or a database (db.go) with an API to set them (admin.go), the middleware around the
// handlers (gateway.go), and a shutdown that lets streams finish.
//
//	go run ./examples/gateway                 # serve, with an embedded model server behind it
//	go run ./examples/gateway -demo           # put load on itself, print what happened, exit
//	go run ./examples/gateway -db limits.db   # limits in a database; README.md shows how to set them
//	go run ./examples/gateway -redis redis://127.0.0.1:6379 # limits over all gateways on this Redis (shared.go)
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/inflight-go/inflight"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal drains, the second one ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// patience is how long clients may keep the gateway waiting.
const patience = 30 * time.Second

// A config is what the command line says.
type config struct {
	addr            string
	operatorAddr    string   // "": see operator
	upstream        *url.URL // nil: the embedded model server
	limits          string
	db              string
	dbTTL           time.Duration
	adminToken      string
	shared          sharedConfig
	wait            time.Duration
	drain           time.Duration
	tokensPerSecond float64
	logLevel        slog.Level
	demo            bool
}

// run is the program: it serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: cfg.logLevel}))
	if cfg.demo {
		err = demo(ctx, load{clients: 200, lasting: 5 * time.Second}, stdout, log)
	} else {
		err = serve(ctx, cfg, stdout, log)
	}
	if err != nil {
		log.Error(err.Error())
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "`address` to listen on; port 0 picks a free one")
	flags.StringVar(&cfg.operatorAddr, "operator-addr", "",
		"`address` for "+strings.Join(operatorPaths, " and ")+"; without it they are at -addr if that is a loopback address,\nwhich is wrong behind a proxy on this machine, else nowhere")
	flags.StringVar(&cfg.limits, "limits", "", "JSON `file` of limits, re-read on change; without it 64 per key")
	flags.StringVar(&cfg.db, "db", "", "SQLite `file` of limits, made if missing; what it does not set, -limits sets")
	flags.DurationVar(&cfg.dbTTL, "db-ttl", 5*time.Minute, "how old a limit from -db gets before it is read again")
	flags.StringVar(&cfg.adminToken, "admin-token", "",
		"`secret` for "+adminPath+", better given in the environment as "+adminTokenVar+"; without one the admin API is off")
	readRedis := cfg.shared.flags(flags)
	flags.DurationVar(&cfg.wait, "wait", 0, "how long a request waits for its turn when a limit is full; 0 refuses at once")
	flags.DurationVar(&cfg.drain, "drain", 30*time.Second, "how long a shutdown lets streams finish")
	flags.Float64Var(&cfg.tokensPerSecond, "tokens-per-second", 20, "speed of the embedded model server")
	flags.TextVar(&cfg.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	flags.BoolVar(&cfg.demo, "demo", false, "put load on itself for some seconds, print what happened and exit")
	flags.Func("upstream", "`URL` of a real model server to proxy to, without /v1", func(s string) (err error) {
		cfg.upstream, err = url.Parse(s)
		if err == nil && (cfg.upstream.Host == "" || cfg.upstream.Scheme != "http" && cfg.upstream.Scheme != "https") {
			err = errors.New("must look like http://host:port")
		}
		return err
	})
	err := flags.Parse(args)
	cfg.adminToken = cmp.Or(cfg.adminToken, os.Getenv(adminTokenVar)) // after parsing, or -help would show it as the default
	switch {
	case err != nil:
		return cfg, err // the flag package has said it
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.tokensPerSecond <= 0:
		err = errors.New("-tokens-per-second must be above 0")
	case cfg.drain < 0:
		err = errors.New("-drain must not be negative")
	case cfg.dbTTL <= 0:
		err = errors.New("-db-ttl must be above 0")
	case cfg.wait < 0:
		err = errors.New("-wait must not be negative")
	default:
		err = readRedis()
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
	}
	return cfg, err
}

// serve runs a gateway until ctx ends and then drains it.
func serve(ctx context.Context, cfg config, stdout io.Writer, log *slog.Logger) (err error) {
	table := inflight.NewLimitTable(inflight.Limits{})
	file := limitsFile{path: cfg.limits, table: table}
	if cfg.limits != "" {
		if _, err := file.load(); err != nil {
			return err
		}
	}
	upstream := newModelServer(cfg.tokensPerSecond)
	if cfg.upstream != nil {
		upstream = newProxy(cfg.upstream, log)
	}
	g, err := build(ctx, cfg, table, upstream, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close(ctx)) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return fmt.Errorf("cannot listen on -addr %s: %w", cfg.addr, err)
	}
	operator, err := newOperator(ctx, g, cfg.operatorAddr, listener.Addr())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	welcome(stdout, listener.Addr(), cfg, table, operator.base)

	var background sync.WaitGroup
	defer background.Wait()
	operating, stopOperating := context.WithCancel(context.WithoutCancel(ctx)) // to the end of draining: that is worth a look
	defer stopOperating()
	background.Go(func() { operator.serve(operating, log) })
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	if cfg.limits != "" {
		background.Go(func() { file.watch(watching, time.Second, log) })
	}
	return g.serve(ctx, listener, cfg.drain)
}

// build makes a gateway with the limits of the table and, if the command line names one, of a database. They are shared
// with other gateways if it names a Redis.
func build(
	ctx context.Context, cfg config, table *inflight.LimitTable, upstream http.Handler, log *slog.Logger,
) (g *gateway, err error) {
	limits := table.Limits
	var registry *inflight.Registry
	var db *dbLimits
	if cfg.db != "" {
		db, err = openDBLimits(ctx, cfg.db, cfg.dbTTL, table.Limits, func() { registry.LimitsChanged() }, log)
		if err != nil {
			return nil, err
		}
		limits = db.Limits
	}
	if registry, err = newRegistry(limits, log); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	var shared *sharing
	if cfg.shared.redis != nil {
		if shared, err = share(ctx, cfg.shared, registry, log); err != nil {
			return nil, errors.Join(err, registry.Close(), db.Close())
		}
	}
	g = newGateway(registry, shared, upstream, cfg.wait, patience, log)
	g.table, g.db = table, db
	table.OnChange(registry.LimitsChanged)
	g.mountAdmin(cfg.adminToken)
	return g, nil
}

// close lets go of what a gateway that has drained, or has never served, still has. That ctx has ended stops it from
// nothing.
func (g *gateway) close(ctx context.Context) error {
	return errors.Join(g.shared.close(context.WithoutCancel(ctx)), g.registry.Close(), g.db.Close())
}

// serve answers on the listener until ctx ends. Then it stops admitting, lets what is in flight finish for up to
// drain, and cuts what is left.
func (g *gateway) serve(ctx context.Context, listener net.Listener, drain time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- g.server.Serve(listener) }()
	select {
	case err := <-failed:
		return errors.Join(err, g.registry.Close())
	case <-ctx.Done():
	}
	g.log.Info("draining", "slots", g.registry.Stats().Holders, "for_up_to", drain)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()

	// The registry goes first, with the listener still open: those who come now hear 503 instead of nothing. What is left
	// to the server then is requests that are not limited, and the last bytes of those that were.
	if err := g.shutdown(ctx); err != nil {
		return errors.Join(err, g.server.Close(), g.registry.Close())
	}
	g.log.Info("drained: 0 slots left")
	if err := g.server.Shutdown(ctx); err != nil {
		g.log.Warn("connections cut", "err", err)
		return g.server.Close()
	}
	return nil
}

// shutdown stops admitting and waits until every slot is released.
func (g *gateway) shutdown(ctx context.Context) error {
	if g.shared != nil {
		return g.shared.drain(ctx)
	}
	return g.registry.Shutdown(ctx)
}

// welcome says where the gateway is, what its limits are, and what to try.
func welcome(out io.Writer, addr net.Addr, cfg config, limits *inflight.LimitTable, operator string) {
	base := urlOf(addr)
	upstream := fmt.Sprintf("an embedded model server, %g tokens/s, models %s", cfg.tokensPerSecond, strings.Join(models, " and "))
	if cfg.upstream != nil {
		upstream = cfg.upstream.Redacted()
	}
	_, _ = fmt.Fprintf(out, "inflight gateway on %s\nupstream: %s\nlimits:   %s\n", base, upstream, describe(limits))
	if cfg.limits != "" {
		_, _ = fmt.Fprintf(out, "          from %s, re-read on change\n", cfg.limits)
	}
	switch {
	case cfg.db == "":
	case cfg.adminToken == "":
		_, _ = fmt.Fprintf(out, "          and before that from %s; the admin API is off, it needs -admin-token\n", cfg.db)
	default:
		_, _ = fmt.Fprintf(out, "          and before that from %s, set at %s%s\n", cfg.db, base, adminPath)
	}
	if cfg.shared.redis != nil {
		_, _ = fmt.Fprintf(out, "          together with all gateways on the Redis at %s\n", cfg.shared.redis.Addr)
	}
	if operator != "" {
		_, _ = fmt.Fprintf(out, "operator: %s%s\n", operator, strings.Join(operatorPaths, ", "+operator))
	} else {
		_, _ = fmt.Fprintln(out, "operator: nowhere, for clients could reach it here; give it an -operator-addr")
	}
	_, _ = fmt.Fprintf(out, `
Try:

curl -N %[1]s%[2]s -H 'Authorization: Bearer sk-acme-123' -H 'Content-Type: application/json' -d '{"model":"%[4]s","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
curl %[1]s%[3]s -H 'x-api-key: sk-acme-123' -H 'Content-Type: application/json' -d '{"model":"%[4]s","max_tokens":20,"messages":[{"role":"user","content":"Hello"}]}'
curl %[1]s/v1/models

`, base, chatPath, messagesPath, models[0])
}

// urlOf returns where a listener is reached from this machine.
func urlOf(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", tcp.Port)
	}
	return "http://" + addr.String()
}
