package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// A Fallback is what a process does when the engine cannot be reached and its leases have lapsed.
type Fallback uint8

const (
	// Share divides each limit evenly by the processes that were live when the engine was last reached: a process admits
	// while it has less than its part in use. A process that never reached the engine divides by Config.Processes.
	Share Fallback = iota

	// Open lets each process admit up to the whole limit, as if it were alone.
	Open

	// Closed admits nothing.
	Closed
)

// String returns "share", "open" or "closed".
func (f Fallback) String() string {
	switch f {
	case Share:
		return "share"
	case Open:
		return "open"
	case Closed:
		return "closed"
	default:
		return fmt.Sprintf("fallback(%d)", uint8(f))
	}
}

// A Config says how a Fleet works. The zero Config is useful. Prefix, Shards and TTL must be the same in all processes.
type Config struct {
	// Prefix begins the names of all keys in Redis. Fleets with different prefixes have nothing to do with each other.
	// Empty means "inflight". It must not hold braces.
	Prefix string

	// Shards is how many hash slots the limits are spread over. 0 means 16.
	Shards int

	// TTL is how long leases hold that are not renewed: so long a crashed process keeps its capacity from others, and so
	// long the engine may be away before Fallback counts. 0 means 30 s. At least 100 ms.
	TTL time.Duration

	// SyncInterval is the time between two renewals of a shard, or up to a fifth less, at random. 0 means TTL / 3. At most
	// TTL / 2.
	SyncInterval time.Duration

	// CallTimeout is how long the answer to a call is waited for, whatever the timeouts of the client are. 0 means 250 ms, or
	// TTL / 4 if that is less. A request that needs more capacity than is leased waits that long at most for the answer, even
	// if it is not to wait for room. It must be longer than a round trip takes; the first call on a new connection takes
	// several, and may have eight times as long, though nobody waits for it then.
	CallTimeout time.Duration

	// DenialMemory is how long a limit that was found full is not asked for again. 0 means 20 ms. It doubles, up to sixteen
	// times that or 400 ms, while the answer stays no. At most a tenth of TTL.
	DenialMemory time.Duration

	// Fallback is what counts when the engine cannot be reached and leases have lapsed.
	Fallback Fallback

	// Processes is how many processes the fleet is expected to have. It matters to a process that starts when the engine
	// cannot be reached or has lost its data, which then admits its part of each limit by Fallback Share. 0: unknown, such
	// a process refuses until it has been told what is free.
	Processes int

	// Logger gets what changes: the engine lost and found again, its data lost. nil means slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix       = "inflight"
	defaultShards       = store.Shards
	maxShards           = 1 << 14 // as many as a Redis Cluster has slots
	defaultTTL          = 30 * time.Second
	defaultCallTimeout  = 250 * time.Millisecond
	defaultDenialMemory = 20 * time.Millisecond
	minTTL              = 100 * time.Millisecond
	minSyncInterval     = 10 * time.Millisecond
	minDenialMemory     = time.Millisecond
)

// withDefaults returns c with its zero values resolved. An error names the field that is wrong.
func (c Config) withDefaults() (Config, error) {
	orDefault(&c.Prefix, defaultPrefix)
	orDefault(&c.Shards, defaultShards)
	orDefault(&c.TTL, defaultTTL)
	orDefault(&c.SyncInterval, c.TTL/3)
	orDefault(&c.CallTimeout, min(defaultCallTimeout, c.TTL/4))
	orDefault(&c.DenialMemory, min(defaultDenialMemory, c.TTL/10))
	orDefault(&c.Logger, slog.Default())
	for _, wrong := range []struct {
		is   bool
		what string
	}{
		{!validPrefix(c.Prefix), "Prefix: must not hold braces or control characters"},
		{c.Shards < 1 || c.Shards > maxShards, fmt.Sprintf("Shards: must be from 1 to %d", maxShards)},
		{c.TTL < minTTL, fmt.Sprintf("TTL: must be at least %v", minTTL)},
		{c.SyncInterval < minSyncInterval || c.SyncInterval > c.TTL/2, "SyncInterval: must be at least 10ms and at most half of TTL"},
		{c.CallTimeout < 0 || c.CallTimeout > c.TTL/2, "CallTimeout: must be positive and at most half of TTL"},
		{
			c.DenialMemory < minDenialMemory || c.DenialMemory > min(maxDenial, c.TTL/10),
			"DenialMemory: must be at least 1ms and at most 400ms and a tenth of TTL",
		},
		{c.Fallback > Closed, "Fallback: must be Share, Open or Closed"},
		{c.Processes < 0, "Processes: must not be negative"},
	} {
		if wrong.is {
			return c, errors.New("inflight: fleet.Config." + wrong.what)
		}
	}
	return c, nil
}

func orDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

func validPrefix(p string) bool {
	return !strings.ContainsFunc(p, func(c rune) bool { return c == '{' || c == '}' || !unicode.IsPrint(c) })
}
