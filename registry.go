package inflight

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"weak"
)

// A Config says how a Registry works. The zero Config is useful: 64 slots per key, a sweep each minute.
type Config struct {
	// Name tells registries apart in logs and metrics. It must be valid UTF-8 and may be empty.
	Name string

	// Limits gives the limits of each key; nil gives every key Limits{}: 64 slots per key and no other limit.
	Limits LimitFunc

	// MaxWaiters bounds the waiters of the registry. 0 means 1024, negative means that Acquire never waits.
	MaxWaiters int

	// MaxWaitersPerKey bounds the waiters of one key. 0 means 64, negative means no bound of its own.
	MaxWaitersPerKey int

	// LongHeld is the age above which a slot is reported, once. 0 means 30 min, negative never.
	LongHeld time.Duration

	// MaxHold is the age above which a sweep cancels the slot's contexts, with cause ErrHeldTooLong. The slot stays
	// counted until its holder releases it. 0 and negative mean never.
	MaxHold time.Duration

	// ReclaimLost frees a slot whose handle was garbage collected unreleased. Such a slot is reported either way.
	ReclaimLost bool

	// SweepInterval is the time between sweeps. 0 means 60 s; negative: no sweeper goroutine, call Sweep yourself.
	SweepInterval time.Duration

	// CaptureStack remembers where each slot was acquired, for SlotInfo and logs. It costs about a microsecond and an
	// allocation on each acquire.
	CaptureStack bool

	// Logger gets what the sweeps find; nil means slog.Default(). It may call the registry's methods but Close and
	// Shutdown.
	Logger *slog.Logger

	// OnSweep gets the report of each sweep, on the goroutine of the sweep. It may call the registry's methods but
	// Close and Shutdown, which wait for the sweeper.
	OnSweep func(SweepReport)
}

const (
	defaultMaxWaiters       = 1024
	defaultMaxWaitersPerKey = 64
	defaultLongHeld         = 30 * time.Minute
	defaultSweepInterval    = time.Minute

	never = time.Duration(math.MaxInt64)
)

// A Registry admits requests while the limits of their keys have room, and knows every holder. All its methods are
// safe for concurrent use. It must be made by New.
//
// The invariants, all kept under mu: the count of a gate is the sum of the weights of its live holders; a gate exists
// exactly while it has a holder or a waiter; a holder leaves by Release, Evict or ReclaimLost and in no other way, and
// never because time passed; a refusal changes nothing. No user code runs while mu is held, and no goroutine waits.
type Registry struct {
	// Immutable after New.
	cfg   Config
	start time.Time // all times are kept as monotonic distance from here: cheaper to read and to keep
	total *gate
	stop  chan struct{} // closed to end the sweeper
	swept chan struct{} // closed when the sweeper has ended

	unused atomic.Pointer[Slot] // see newSlot

	// epoch counts the calls of LimitsChanged. It is written under mu and read without.
	epoch atomic.Uint64

	mu sync.Mutex // guards all that follows, and what hangs from it

	closed  bool
	stopped bool          // stop is closed
	drained chan struct{} // closed when the last holder of a closed registry leaves; nil while nobody waits for it

	gates     [scopes]map[Key]*gate
	mostGates [scopes]int  // the most that the map has held
	tracked   [scopes]bool // whether orgs and models are counted, see trackLocked
	keys      list[gate]   // the gates of keys, in no order that matters

	holders list[holder]  // in the order of their admission, so ids and ages are sorted
	waiters list[waiter]  // in the order of their arrival
	leases  *Leases       // nil unless its limits are leased
	lastID  uint64        // the last slot's
	lastSeq uint64        // the last waiter's
	newest  time.Duration // when the last holder was admitted

	// Bookmarks in holders: the holders before each were seen, reported as long held, cancelled as held too long.
	seen, reported, overdue elem[holder]
	orphans                 []ticket // lost handles that the next sweep reports

	spareHolders spares[holder]
	spareGates   spares[gate]
	blanks       [scopes]gate // stand for gates that do not exist; nobody ever holds or waits there

	tally tally
}

// New makes a registry, and starts its sweeper unless SweepInterval is negative. An error names the field that is
// wrong. A registry that was not closed and is no longer referenced is collected, and its sweeper ends when
// it would sweep next.
func New(cfg Config) (*Registry, error) {
	if !utf8.ValidString(cfg.Name) {
		return nil, errors.New("inflight: Config.Name: not valid UTF-8")
	}
	if cfg.Limits == nil {
		cfg.Limits = Fixed(Limits{})
	}
	orDefault(&cfg.MaxWaiters, defaultMaxWaiters)
	orDefault(&cfg.MaxWaitersPerKey, defaultMaxWaitersPerKey)
	if cfg.MaxWaitersPerKey < 0 {
		cfg.MaxWaitersPerKey = math.MaxInt
	}
	orDefault(&cfg.LongHeld, defaultLongHeld)
	orDefault(&cfg.SweepInterval, defaultSweepInterval)
	orDefault(&cfg.MaxHold, never)
	for _, d := range []*time.Duration{&cfg.LongHeld, &cfg.MaxHold} {
		if *d < 0 {
			*d = never
		}
	}

	r := &Registry{
		cfg:   cfg,
		start: time.Now(),
		total: &gate{scope: ScopeTotal},
		stop:  make(chan struct{}),
		swept: make(chan struct{}),
	}
	r.total.queue.init()
	r.keys.init()
	r.waiters.init()
	for s := range r.blanks {
		r.blanks[s].scope = Scope(s)
		r.blanks[s].queue.init()
	}
	r.linkLocked(&r.blanks[ScopeKey])
	r.holders.init()
	for _, mark := range []*elem[holder]{&r.seen, &r.reported, &r.overdue} {
		r.holders.push(mark)
	}
	if cfg.SweepInterval > 0 {
		go sweeper(weak.Make(r), cfg.SweepInterval, r.stop, r.swept)
	} else {
		close(r.swept)
	}
	return r, nil
}

func orDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// An Acquirer hands out slots; the HTTP parts need no more than that. *Registry is one.
type Acquirer interface {
	Acquire(ctx context.Context, k Key, opts ...Option) (*Slot, error)
}

// TryAcquire takes a slot if every limit of the key has room, and never waits. The error is a *LimitError (errors.Is
// ErrLimit), ErrClosed, or says that an option is wrong; then nothing was counted and nothing is left behind. It does
// not overtake those who wait at one of the limits.
//
// The slot must be released: defer slot.Release().
func (r *Registry) TryAcquire(k Key, opts ...Option) (*Slot, error) {
	var q request
	if err := q.init(k, opts); err != nil {
		return nil, err
	}
	q.stack = r.callers()
	q.readLimits(r.cfg.Limits)
	s := r.newSlot(&q)
	now := r.now()

	r.mu.Lock()
	b, err := r.tryLocked(&q, s, now)
	if b.limited {
		if b.lease != nil {
			r.askLocked(&q, nil, false, now) // for the next one
		}
		err = r.refuseLocked(&q, b, refusedFull)
	}
	r.mu.Unlock()
	if err != nil {
		r.unused.Store(s)
		return nil, err
	}
	return s, nil
}

// now returns the time since start.
func (r *Registry) now() time.Duration { return time.Since(r.start) }

// callers returns the stack of whoever called the registry, nil unless CaptureStack is set.
func (r *Registry) callers() []uintptr {
	if !r.cfg.CaptureStack {
		return nil
	}
	var pcs [32]uintptr
	return append([]uintptr(nil), pcs[:runtime.Callers(3, pcs[:])]...)
}

// Name returns Config.Name.
func (r *Registry) Name() string { return r.cfg.Name }

// InUse returns the weight in use for the key, over all its holders. Safe for concurrent use; 0 for a key nobody uses.
func (r *Registry) InUse(k Key) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.gates[ScopeKey][k]; g != nil {
		return g.inUse
	}
	return 0
}
