// Package fleet keeps the limits of inflight over many processes, on Redis or Valkey.
//
//	reg, err := inflight.New(inflight.Config{Limits: limits})
//	...
//	f, err := fleet.New(ctx, redis.NewClient(&redis.Options{Addr: addr}), reg, fleet.Config{})
//	...
//	defer f.Close(ctx)
//	handler = inflight.Middleware(f, inflight.MiddlewareConfig{Key: key})(handler)
//
// A process leases capacity, not requests: it is granted so many units of a limit, admits within its grant without asking
// anybody, and renews all its leases together. No request is ever written down in Redis, so none can expire there while
// it runs. docs/fleet.md says what is promised, and what is not, when processes or Redis fail.
//
// It needs Redis 6.2 or newer with maxmemory-policy noeviction. It is not a queue: there is no order between processes.
package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet/internal/redisstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// A Fleet makes the limits of a registry hold over all processes that share an engine. It is an [inflight.Acquirer]. All
// its methods are safe for concurrent use. It must be made by New and closed.
type Fleet struct {
	// Immutable after New.
	id     string // of this process, new with each start
	cfg    Config
	local  *inflight.Registry
	leases *inflight.Leases
	store  store.Store
	shards []*shard
	stop   context.CancelFunc // ends the shards

	calling context.Context //nolint:containedctx // of all calls, which go on a little when the shards have ended
	abort   context.CancelFunc
	loops   sync.WaitGroup // the goroutines of the shards
	calls   sync.WaitGroup // those of calls

	tally tally

	mu     sync.Mutex // guards what follows; never held while anything is waited for but the logger
	failed int        // shards whose last call failed

	closing chan struct{} // has the value while nobody closes
	closed  bool          // guarded by closing
}

// New makes the limits of local hold over the fleet: all scopes of its limit function, from now on. What is in use already
// counts. Use the Fleet in place of local for Middleware, NewTransport and in workers; what is acquired from local itself
// counts as well.
//
// If the engine cannot be reached, New succeeds all the same and says so in the log: the process then lives by
// Config.Fallback until it can be. New fails if the configuration is wrong, if local is leased already, if ctx ends, or if
// the engine refuses the user, the password or the rights. Then local is as it was.
//
// The client remains the caller's, to be closed after the Fleet. Its MaxRetries should be -1, for a call that is late is
// worth nothing.
func New(ctx context.Context, client redis.UniversalClient, local *inflight.Registry, cfg Config) (*Fleet, error) {
	if client == nil {
		return nil, errors.New("inflight: fleet.New: nil client")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	engine := redisstore.New(client, cfg.Prefix)
	f, err := NewOn(ctx, engine, local, cfg)
	if err != nil {
		return nil, err
	}
	f.checkPolicy(ctx, engine)
	return f, nil
}

// NewOn is as New, on any engine. It is for simulations.
func NewOn( //nolint:contextcheck // what runs for as long as the Fleet does must not end with ctx
	ctx context.Context, engine store.Store, local *inflight.Registry, cfg Config,
) (*Fleet, error) {
	if local == nil {
		return nil, errors.New("inflight: fleet.New: nil registry")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fleet{id: newID(), cfg: cfg, local: local, store: engine, closing: make(chan struct{}, 1)}
	f.tally.shards = make([]shardTally, cfg.Shards)
	f.closing <- struct{}{}
	if err := f.knock(ctx); err != nil {
		return nil, err
	}
	if f.leases, err = local.Lease(cfg.Shards, 2*cfg.CallTimeout); err != nil {
		return nil, errors.Join(err, f.leaveShard(ctx, 0)) // where knock has announced it
	}
	f.calling, f.abort = context.WithCancel(context.WithoutCancel(ctx))
	running, stop := context.WithCancel(f.calling)
	f.stop = stop
	for i := range cfg.Shards {
		f.shards = append(f.shards, newShard(f, i))
	}
	for _, s := range f.shards {
		f.loops.Go(func() { s.run(running) })
	}
	for _, s := range f.shards {
		select {
		case <-s.begun:
		case <-ctx.Done(): // it goes on in the background
		}
	}
	return f, nil
}

// newID returns the name of this process: 128 random bits in hex. Engines order names, so all are of one kind.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// knock finds out whether the engine would have this process at all. That it cannot be reached is no answer.
func (f *Fleet) knock(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	done := make(chan error, 1)
	f.calls.Go(func() {
		_, err := f.store.Lease(call, 0, store.Call{ID: f.id, TTL: f.cfg.TTL})
		done <- err
	})
	var err error
	select {
	case err = <-done:
	case <-call.Done():
	}
	if ctx.Err() != nil {
		return fmt.Errorf("inflight: fleet.New: %w", ctx.Err())
	}
	if redis.IsAuthError(err) || redis.IsPermissionError(err) {
		return fmt.Errorf("inflight: fleet.New: refused by the engine: %w", err)
	}
	return nil
}

// checkPolicy warns of an engine that may forget leases when its memory is full.
func (f *Fleet) checkPolicy(ctx context.Context, engine *redisstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.CallTimeout)
	defer cancel()
	policy, err := engine.Policy(ctx)
	switch {
	case err != nil:
		f.log((*slog.Logger).Info, "inflight: fleet: cannot tell the engine's maxmemory-policy, which must be noeviction", "error", err)
	case policy != "noeviction":
		f.log((*slog.Logger).Warn, "inflight: fleet: the engine may evict leases: set its maxmemory-policy to noeviction", "policy", policy)
	}
	f.tally.mu.Lock()
	f.tally.policy = policy
	f.tally.mu.Unlock()
}

// Acquire takes a slot from the local registry, as [inflight.Registry.Acquire] does, within what the fleet grants to this
// process. If more is needed the engine is asked, by one call for all who need it; a request that is not to wait for room
// waits for the answer all the same, at most about twice Config.CallTimeout.
func (f *Fleet) Acquire(ctx context.Context, k inflight.Key, opts ...inflight.Option) (*inflight.Slot, error) {
	return f.local.Acquire(ctx, k, opts...)
}

// Registry returns the local registry.
func (f *Fleet) Registry() *inflight.Registry { return f.local }

// Close shuts the local registry down, as [inflight.Registry.Shutdown] does: it stops admitting, refuses waiters, and
// waits until every slot is released. Then it gives back all leases at once. If ctx ends first the leases of what is still
// in flight are not given back but lapse, after TTL at most; the error wraps ctx.Err(). If the engine cannot be told, all
// leases lapse; the error says so. Calls that the client does not end by their time may be left behind, nothing else. Later
// calls do nothing.
func (f *Fleet) Close(ctx context.Context) error {
	select {
	case <-f.closing: // also with a ctx that has ended: then it closes without waiting
	default:
		select {
		case <-f.closing:
		case <-ctx.Done():
			return fmt.Errorf("inflight: fleet: closed by somebody else at the same time: %w", ctx.Err())
		}
	}
	defer func() { f.closing <- struct{}{} }()
	if f.closed {
		return nil
	}
	f.closed = true
	err := f.local.Shutdown(ctx)
	f.stop()
	f.loops.Wait()
	f.awaitCalls(ctx)
	f.abort()
	if err != nil {
		return errors.Join(err, f.local.Close())
	}
	return f.leave(ctx)
}

// awaitCalls waits for the calls under way, for one that is executed after the leave leases again. But not for long: if
// the engine does not answer, it may not hear of the leave either.
func (f *Fleet) awaitCalls(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.CallTimeout)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		f.calls.Wait()
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// leaveTries is how often a shard is told that this process leaves. No later call makes good one that was lost, and what it
// costs is the capacity of this process for a whole TTL.
const leaveTries = 3

// leave gives back all leases.
func (f *Fleet) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	errs := make([]error, len(f.shards))
	var left sync.WaitGroup
	for i := range f.shards {
		left.Go(func() {
			for range leaveTries {
				if errs[i] = f.leaveShard(ctx, i); errs[i] == nil || ctx.Err() != nil {
					return
				}
			}
		})
	}
	left.Wait()
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("inflight: fleet: leases not given back, they lapse in %v: %w", f.cfg.TTL, err)
	}
	return nil
}

// leaveShard gives back the leases of one shard. It does not wait for a client that outlives the time of the call.
func (f *Fleet) leaveShard(ctx context.Context, shard int) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience()/2)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.store.Leave(ctx, shard, f.id) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteCall logs the change when the engine is lost, for any shard, and when it is found again, for all.
func (f *Fleet) noteCall(failedBefore bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.failed
	if failedBefore {
		f.failed--
	}
	if err != nil {
		f.failed++
	}
	switch {
	case before == 0 && f.failed > 0:
		f.log((*slog.Logger).Warn, "inflight: fleet: engine not reached", "fallback", f.cfg.Fallback.String(), "error", err)
	case before > 0 && f.failed == 0:
		f.log((*slog.Logger).Info, "inflight: fleet: engine reached again")
	}
}

// log writes one line. A logger that panics takes nothing with it.
func (f *Fleet) log(write func(*slog.Logger, string, ...any), message string, attrs ...any) {
	defer func() { _ = recover() }()
	write(f.cfg.Logger, message, append(attrs, "registry", f.local.Name())...)
}

// until is when leases lapse that were renewed by a call sent at that time. The engine counts from later on, and the
// tenth that is left out is for clocks that run at different speeds.
func (f *Fleet) until(sent time.Time) time.Time { return sent.Add(f.cfg.TTL - f.cfg.TTL/10) }
