package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// redisVar is where the URL of Redis is looked for, besides the command line, which every user of the machine can see.
const redisVar = "GATEWAY_REDIS"

// A sharedConfig is what the command line says of limits that several gateways share.
type sharedConfig struct {
	redis *redis.Options // nil: the limits are those of this gateway alone
	fleet fleet.Config
}

// flags defines the flags, and returns what reads the URL when all are parsed.
func (c *sharedConfig) flags(flags *flag.FlagSet) (finish func() error) {
	raw := flags.String("redis", "",
		"`URL` (redis:// or rediss://) of the Redis that all gateways with the same limits share;\n"+
			"one with a password is better given in the environment as "+redisVar)
	flags.StringVar(&c.fleet.Prefix, "redis-prefix", "", "begins the names of all keys in Redis (default inflight)")
	flags.IntVar(&c.fleet.Processes, "processes", 0,
		"how many gateways there will be; while Redis has no data, or is away from the start, each admits its part\n"+
			"of every limit; without -processes nothing is admitted then")
	flags.Func("fallback", "`policy` for when Redis is away for long: share (each gateway its part of every limit; the default),\n"+
		"open (each the whole limit) or closed (nothing)", func(s string) error {
		for _, f := range []fleet.Fallback{fleet.Share, fleet.Open, fleet.Closed} {
			if s == f.String() {
				c.fleet.Fallback = f
				return nil
			}
		}
		return errors.New("must be share, open or closed")
	})
	return func() error { return c.read(cmp.Or(*raw, os.Getenv(redisVar))) }
}

func (c *sharedConfig) read(raw string) (err error) {
	if raw == "" {
		if c.fleet != (fleet.Config{}) {
			return errors.New("-redis-prefix, -processes and -fallback need -redis")
		}
		return nil
	}
	if c.redis, err = redis.ParseURL(raw); err != nil {
		if bad := new(url.Error); errors.As(err, &bad) {
			err = bad.Err // without the URL, in which there may be a password
		}
		return fmt.Errorf("-redis must look like redis://user:password@host:6379/0: %w", err)
	}
	// A call that is late is worth nothing: the fleet makes another one. And with one dial its error is told, not that the
	// time was over.
	c.redis.MaxRetries, c.redis.DialerRetries, c.redis.ContextTimeoutEnabled = -1, 1, true
	return nil
}

// quietRedis keeps the client from logging each dial that fails. The fleet logs when Redis is lost and when it is back.
var quietRedis = sync.OnceFunc(logging.Disable)

// A sharing makes the limits of a registry hold over all gateways on the same Redis.
type sharing struct {
	fleet  *fleet.Fleet
	client *redis.Client
	log    *slog.Logger
}

// share begins a sharing. That Redis cannot be reached is no error, but that it refuses the password is.
func share(ctx context.Context, cfg sharedConfig, registry *inflight.Registry, log *slog.Logger) (*sharing, error) {
	cfg.fleet.Logger = log
	quietRedis()
	s := &sharing{client: redis.NewClient(cfg.redis), log: log}
	var err error
	if s.fleet, err = fleet.New(ctx, s.client, registry, cfg.fleet); err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	s.sayHow(cfg)
	return s, nil
}

// sayHow says how the sharing begins.
func (s *sharing) sayHow(cfg sharedConfig) {
	stats := s.fleet.Stats()
	log := s.log.With("redis", cfg.redis.Addr, "gateways", stats.Processes)
	switch {
	case stats.Processes == 0: // Redis is not reached, which the fleet has said
	case stats.Learning == 0:
		log.Info("limits are shared")
	case cfg.fleet.Processes > 0:
		log.Warn("limits are shared, but Redis has no data: for now each gateway admits its part of every limit",
			"at_most", learning, "parts", cfg.fleet.Processes)
	default:
		log.Warn("limits are shared, but Redis has no data: for now nothing is admitted; with -processes a part would be",
			"at_most", learning)
	}
}

// learning is how long a Redis that has no data lets gateways report what they have in flight: the fleet's TTL.
const learning = 30 * time.Second

// drain stops admitting, waits until every slot is released, and gives back what was leased, so that other gateways have
// it at once. If ctx ends first the error says so. If Redis is away then others must wait for it, but nothing is wrong
// here.
func (s *sharing) drain(ctx context.Context) error {
	err := s.fleet.Close(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.log.Warn("drained, but other gateways do not know yet", "err", err)
	return nil
}

// close does nothing to nil. Of a sharing that was drained it closes the client alone.
func (s *sharing) close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return errors.Join(s.fleet.Close(ctx), s.client.Close())
}
