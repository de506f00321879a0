package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// A shard keeps the leases of one shard. Its goroutine makes one call at a time, in which everything goes that there is to
// say: what waiting requests need, what has fallen idle, what is due to be renewed. Whoever needs something while a call
// is under way goes with the next one.
type shard struct {
	// Immutable.
	fleet *Fleet
	n     int
	begun chan struct{} // closed when the first call is over
	calls chan struct{} // has room for as many calls as may be under way, the abandoned ones too

	// Only the goroutine uses what follows.
	syncAt   time.Time // when the next renewal of all leases is due
	afresh   bool      // it begins with the first of them, whatever has been renewed already
	begunIn  int64     // the epoch in which it began; 0 if it is to begin
	told     int64     // the epoch in which the engine was told of all leases
	ends     int64     // when the last renewal ends, on the engine's clock
	idleAt   time.Time // when to look for what can be given back; zero unless something may
	retryAt  time.Time // no call before; zero unless the last one failed
	failures int       // in a row
	fallen   bool      // the fallback is in force
	epoch    int64     // 0 before the first reply
	live     int       // processes when that was last known for certain, 0 before
	rank     int       // of this one among them
}

const (
	maxEntries = 100 // in a call
	maxCalls   = 4   // under way at a time

	idleDelay = 5 * time.Millisecond // for more to fall idle, and for what is idle to be used again

	minRetry = 50 * time.Millisecond
	maxRetry = time.Second
)

func newShard(f *Fleet, n int) *shard {
	return &shard{fleet: f, n: n, begun: make(chan struct{}), calls: make(chan struct{}, maxCalls)}
}

func (s *shard) run(ctx context.Context) {
	wake := s.fleet.leases.Wake(s.n)
	timer := time.NewTimer(0)
	defer timer.Stop()
	begun := s.begun
	for ctx.Err() == nil {
		next := s.turn(ctx)
		if begun != nil {
			close(begun)
			begun = nil
		}
		wait := time.Until(next)
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// turn does what is due, and returns when something will be.
func (s *shard) turn(ctx context.Context) time.Time {
	leases := s.fleet.leases
	now := time.Now()
	if leases.Lapsed(s.n) && !s.fallen || s.failures > 0 && !now.Before(s.retryAt) {
		// Nothing may be said about leases that do not hold before it is known what they are worth. And nothing is given up
		// before somebody hears of it: for as long as the engine is away it could not be had back.
		s.syncAt = now
		s.call(ctx, nil, true)
		return now
	}
	asks, again := leases.Asks(s.n, maxEntries)
	if now.Before(s.retryAt) {
		leases.Fail(asks, s.retryAt.Sub(now))
		return s.retryAt
	}

	entries := asks
	due := !now.Before(s.syncAt)
	switch {
	case len(asks) > 0 || due || !s.idleAt.IsZero() && !now.Before(s.idleAt):
		s.idleAt = time.Time{}
		entries = append(entries, leases.Idle(s.n, maxEntries)...)
	case s.idleAt.IsZero():
		s.idleAt = now.Add(s.crowd(idleDelay))
	}
	if due {
		if s.afresh || s.begunIn == 0 {
			s.begunIn = s.epoch
		}
		held, more := leases.Held(s.n, maxEntries, s.afresh)
		entries, s.afresh = append(entries, held...), false
		if s.call(ctx, entries, true) && !more {
			s.renewed(now)
		}
		return now
	}
	if len(entries) > 0 {
		s.call(ctx, entries, false)
		return now
	}
	return earliest(s.syncAt, s.idleAt, again)
}

// renewed takes in that the engine was told of all leases.
func (s *shard) renewed(now time.Time) {
	if s.afresh {
		return // it has lost what it was told before the last call
	}
	s.told, s.begunIn = s.begunIn, 0
	s.syncAt = now.Add(early(s.fleet.cfg.SyncInterval))
}

// call makes one call and takes in what comes of it. It returns whether the engine has read what was said.
func (s *shard) call(ctx context.Context, leases []inflight.Lease, census bool) bool {
	c := store.Call{
		ID: s.fleet.id, TTL: s.fleet.cfg.TTL, Ends: s.ends, Census: census,
		More:    s.epoch != s.told,
		Entries: make([]store.Entry, len(leases)),
	}
	for i := range leases {
		c.Entries[i] = entryOf(&leases[i])
	}
	sent := time.Now()
	reply, err := s.send(ctx, c)
	if ctx.Err() != nil {
		return false // Close: all who waited have been refused
	}
	s.fleet.tally.called(time.Since(sent), len(leases), err)
	s.fleet.noteCall(s.failures > 0, err)
	if err != nil {
		s.missed(leases)
		return false
	}
	if s.epoch != reply.Epoch || !reply.Known {
		s.syncAt, s.afresh = sent, true // the engine does not know what is held here
	}
	if s.epoch == 0 {
		s.told = reply.Epoch // there is nothing yet
	}
	lost := s.epoch != 0 && s.epoch != reply.Epoch
	if lost {
		s.fleet.log((*slog.Logger).Warn, "inflight: fleet: the engine has lost its data, nothing more is granted for a while",
			"shard", s.n, "wait", reply.Learning)
	}
	s.failures, s.retryAt, s.fallen, s.epoch, s.ends = 0, time.Time{}, false, reply.Epoch, reply.Ends
	if reply.Learning == 0 {
		s.live = reply.Live
		if census {
			s.rank = reply.Rank
		}
	}
	s.fleet.leases.Renew(s.n, s.terms(sent, &reply))
	s.fleet.tally.renewed(s.n, sent, &reply, lost)
	if !reply.Known && reply.Learning == 0 {
		s.fleet.leases.Fail(leases, time.Millisecond) // they were not read
		return false
	}
	s.take(leases, &reply)
	return true
}

// missed takes in that a call failed.
func (s *shard) missed(leases []inflight.Lease) {
	pause := jitter(min(minRetry<<min(s.failures, 10), maxRetry))
	s.failures++
	s.retryAt = time.Now().Add(pause)
	s.fleet.leases.Fail(leases, pause)
	if s.fleet.leases.Lapsed(s.n) {
		s.fallen = true
		s.fleet.leases.Fall(s.n, s.terms(time.Time{}, nil))
		s.fleet.tally.fell(s.n)
	}
}

// take hands the answers to those who wait for them.
func (s *shard) take(leases []inflight.Lease, reply *store.Reply) {
	grants := make([]inflight.Grant, len(leases))
	for i, a := range reply.Answers {
		if a.Stale { // impossible, unless the engine mixes up processes: then believe what is known here
			a = store.Answer{Granted: leases[i].Have, Others: -1, Keep: -1, Short: leases[i].Need > 0}
		}
		a.Short = a.Short || leases[i].Need > store.Max // more than an engine can count
		g := inflight.Grant{Granted: a.Granted, Others: a.Others, Keep: a.Keep}
		// A shard that learns gives to nobody what is given back.
		g.Tight = reply.Learning == 0 && (a.Short || a.Contended || a.Keep >= 0)
		if a.Short {
			g.Denied = s.denial(leases[i].Denials, a.First)
			if reply.Learning > 0 {
				g.Denied = max(g.Denied, min(reply.Learning, s.fleet.cfg.TTL/30))
			}
		}
		grants[i] = g
	}
	s.fleet.leases.Answer(leases, grants)
}

// terms says what leases are worth that were renewed by a call sent at that time, and what counts when they have lapsed.
func (s *shard) terms(sent time.Time, reply *store.Reply) inflight.Terms {
	t := inflight.Terms{Parts: s.live, Part: s.rank}
	if s.live == 0 {
		t.Parts, t.Part = s.fleet.cfg.Processes, s.fleet.cfg.Processes
	}
	switch s.fleet.cfg.Fallback {
	case Share:
	case Open:
		t.Parts, t.Part = 1, 0
	case Closed:
		t.Parts = 0
	}
	if reply != nil {
		t.Until = s.fleet.until(sent)
		t.Anew = !reply.Known && reply.Learning == 0
		t.Learning = reply.Learning > 0
	}
	return t
}

// denial is how long to remember a denial, after so many in a row. What falls free waits for the first in line, so that
// comes back sooner.
func (s *shard) denial(before int, first bool) time.Duration {
	memory, doublings := s.fleet.cfg.DenialMemory, maxDoublings
	if first {
		doublings /= 2
	}
	return jitter(min(s.crowd(memory)<<min(before, doublings), memory<<doublings, maxDenial))
}

const (
	maxDoublings = 4
	crowded      = 20

	maxDenial = store.Window * 4 / 5 // who asks again later is not known to wait
)

// crowd is how much time a process of a large fleet takes instead of d, or the engine would have more to do the more
// processes share what there is: each has less of it, and less often.
func (s *shard) crowd(d time.Duration) time.Duration {
	return d * time.Duration(max(1, s.live/crowded))
}

// early is d or a little less: processes that start together should not go on together, and nobody should be late.
func early(d time.Duration) time.Duration {
	return d - rand.N(d/5+1) //nolint:gosec // no secret
}

// jitter keeps processes from calling in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // no secret
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
