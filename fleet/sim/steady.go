package main

import (
	"slices"
	"sync"
	"time"
)

// A crowd is the processes of one design under one load.
type crowd struct {
	load      load
	design    *design
	meter     *meter
	processes []*process
	running   sync.WaitGroup
}

func newCrowd(d *design, l load, seed uint64) *crowd {
	c := &crowd{load: l, design: d, meter: newMeter(l.limits())}
	for i, admit := range d.admit {
		c.processes = append(c.processes, &process{
			number: i, load: &c.load, meter: c.meter, admit: admit, held: make([]int, l.keys),
		})
	}
	for _, p := range c.processes {
		c.running.Go(func() { p.run(seed, len(d.admit)) })
	}
	return c
}

// end stops the requests, and returns when the last is over and the design is closed.
func (c *crowd) end() {
	for _, p := range c.processes {
		p.stopped.Store(true)
	}
	c.running.Wait()
	c.design.close()
}

// A tally is what the processes have done.
type tally struct {
	admitted, refused, early, calls float64
	each                            []float64 // admitted by each process
}

func (c *crowd) tally() tally {
	t := tally{calls: float64(c.design.calls())}
	for _, p := range c.processes {
		n := float64(p.admitted.Load())
		t.admitted += n
		t.refused += float64(p.refused.Load())
		t.early += float64(p.early.Load())
		t.each = append(t.each, n)
	}
	return t
}

// A steady row is what a design makes of a load that goes on.
type steady struct {
	design            string
	admissions        float64 // a second
	calls             float64 // a second
	refused           float64 // of all requests
	early             float64 // of all requests, those refused although a tenth of the limit was free
	jain              float64 // fairness between processes, see there
	utilisation, peak float64
}

// A plan says how long to measure what.
type plan struct {
	processes  int
	warm, span time.Duration
	net        network
	seed       uint64
}

// measure puts a design under a load, and looks at it when it has found its ways.
func (p *plan) measure(d *design, l load) steady {
	c := newCrowd(d, l, p.seed)
	defer c.end()
	pause(p.warm)
	before := c.tally()
	c.meter.begin(0)
	pause(p.span)
	after, read := c.tally(), c.meter.read()
	each := slices.Clone(after.each)
	for i := range each {
		each[i] -= before.each[i]
	}
	admitted, refused := after.admitted-before.admitted, after.refused-before.refused
	return steady{
		design:      d.name,
		admissions:  admitted / p.span.Seconds(),
		calls:       (after.calls - before.calls) / p.span.Seconds(),
		refused:     refused / max(admitted+refused, 1),
		early:       (after.early - before.early) / max(admitted+refused, 1),
		jain:        jain(each),
		utilisation: read.utilisation, peak: read.peak,
	}
}

// jain is Jain's index of fairness: 1 if all got the same, 1/n if one got it all.
func jain(each []float64) float64 {
	var sum, squares float64
	for _, x := range each {
		sum += x
		squares += x * x
	}
	return sum * sum / max(squares, 1) / float64(len(each))
}
