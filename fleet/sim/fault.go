package main

import (
	"time"

	"github.com/inflight-go/inflight/fleet/internal/modelstore"
)

// A fault is what happens to a fleet of which more is asked than it may do. A tenth of its processes is hit, or the engine.
type fault struct {
	name   string
	lasts  time.Duration // then it is healed; 0: it is over at once
	strike func(*victim)
	heal   func(*victim) // nil: it heals by itself
}

// A victim is a fleet to which a fault happens.
type victim struct {
	*leased

	crowd *crowd
	old   modelstore.Snapshot // of a second before
}

const (
	away = ttl + ttl/2 // longer than leases hold
	lead = 10 * time.Second
	lag  = 90 * time.Second
	step = 500 * time.Millisecond
)

func faults() []fault {
	return []fault{
		{name: "a tenth of the processes crashes", strike: func(v *victim) {
			v.hit(func(i int) {
				v.engine.Cut(v.id(i), true)
				v.crowd.processes[i].kill()
			})
		}},
		{name: "a replica takes over that lacks the last second", strike: func(v *victim) { v.engine.Restore(v.old) }},
		{name: "the engine loses all data", strike: func(v *victim) { v.engine.Flush() }},
		{name: "a tenth of the processes is cut off for 45 s", lasts: away, strike: func(v *victim) {
			v.hit(func(i int) { v.engine.Cut(v.id(i), true) })
		}, heal: func(v *victim) {
			v.hit(func(i int) { v.engine.Cut(v.id(i), false) })
		}},
		{
			name: "the engine is down for 45 s", lasts: away,
			strike: func(v *victim) { v.engine.Down(true) },
			heal:   func(v *victim) { v.engine.Down(false) },
		},
	}
}

// hit does something to a tenth of the processes.
func (v *victim) hit(what func(i int)) {
	for i := 0; i < len(v.fleets); i += 10 {
		what(i)
	}
}

// faulted is the load of a fleet that is hit: each process has more to do than its part for a while, and then less.
func faulted() load {
	return load{keys: 1, limit: 3000, demand: 1.5, hold: 4 * time.Second, phases: true}
}

// A course is what a fault made of the use of the limit, in steps of time; lead is before it.
type course struct {
	fault  fault
	used   []float64 // by the limit
	peaks  []float64 // the same, the most in each step
	before float64   // used before the fault
	calls  float64   // a second, from the fault on
}

func (p *plan) suffer(f fault) course {
	l := faulted()
	l.scale(p.processes)
	v := &victim{leased: newLeased(p.processes, &l, p.net, p.seed)}
	v.crowd = newCrowd(&v.design, l, p.seed)
	pause(p.warm)
	v.crowd.meter.begin(step)
	pause(lead - time.Second)
	v.old = v.engine.Snapshot()
	pause(time.Second)
	calls := v.calls()
	f.strike(v)
	if f.heal != nil {
		pause(f.lasts)
		f.heal(v)
	}
	pause(lag - f.lasts)
	calls = v.calls() - calls
	read := v.crowd.meter.read()
	v.crowd.end()

	c := course{fault: f, calls: float64(calls) / lag.Seconds()}
	for _, b := range read.bins[:int((lead+lag)/step)] { // the last is empty
		c.used = append(c.used, b.used/step.Seconds()/float64(l.limit))
		c.peaks = append(c.peaks, float64(b.peak)/float64(l.limit))
	}
	c.before = mean(c.used[:int(lead/step)])
	return c
}

// worst returns the least of the limit that was in use after the fault, over a step.
func (c *course) worst() float64 {
	worst := c.before
	for _, u := range c.used[int(lead/step):] {
		worst = min(worst, u)
	}
	return worst
}

// recovered is how long after the fault the use of the limit was back to 95 % of what it was before, for good: over two
// seconds it was never less from then on.
func (c *course) recovered() time.Duration {
	const over = int(2 * time.Second / step)
	event := int(lead / step)
	for i := len(c.used) - over; i > event; i-- {
		if mean(c.used[i:i+over]) < 0.95*c.before {
			return time.Duration(i+over-event) * step
		}
	}
	return 0
}

// peak returns the most that was in use since the fault, by the limit, and for how long after it more than the limit was.
func (c *course) peak() (peak float64, above time.Duration) {
	event := int(lead / step)
	for i, p := range c.peaks[event:] {
		peak = max(peak, p)
		if p > 1 {
			above = time.Duration(i+1) * step
		}
	}
	return peak, above
}

func mean(of []float64) float64 {
	var sum float64
	for _, x := range of {
		sum += x
	}
	return sum / float64(len(of))
}
