package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// A process takes its part of the requests.
type process struct {
	// Immutable.
	number int
	load   *load
	meter  *meter
	admit  admitter

	stopped  atomic.Bool
	requests sync.WaitGroup

	admitted, refused, early atomic.Int64 // early: refused although a tenth of the limit was free

	// Guarded by meter.mu.
	held []int // in flight, by key
	dead bool
}

// An admitter returns a nil function if it refuses.
type admitter func(key int) (release func())

// run has requests come until the process is stopped, in the order and at the times that the seed says.
func (p *process) run(seed uint64, processes int) {
	rnd := source(seed, p.number)
	key := p.load.keysOf(rnd)
	rate, other := p.load.rates(p.number, processes)
	if rnd.IntN(2) == 0 {
		rate, other = other, rate
	}
	turn := time.Now().Add(time.Duration(rnd.ExpFloat64() * float64(phase)))
	for {
		pause(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second)))
		if p.stopped.Load() {
			break
		}
		if time.Now().After(turn) {
			rate, other = other, rate
			turn = time.Now().Add(time.Duration(rnd.ExpFloat64() * float64(phase)))
		}
		k, hold := key(), time.Duration(rnd.ExpFloat64()*float64(p.load.hold))
		p.requests.Go(func() { p.request(k, hold) })
	}
	p.requests.Wait()
}

func (p *process) request(key int, hold time.Duration) {
	release := p.admit(key)
	if release == nil {
		p.refused.Add(1)
		if p.meter.room(key) {
			p.early.Add(1)
		}
		return
	}
	p.admitted.Add(1)
	p.count(key, 1)
	p.requests.Add(1)
	time.AfterFunc(hold, func() {
		defer p.requests.Done()
		p.count(key, -1)
		release()
	})
}

// count notes that n more requests are in flight. Nothing of a dead process is.
func (p *process) count(key, n int) {
	p.meter.mu.Lock()
	defer p.meter.mu.Unlock()
	if !p.dead {
		p.held[key] += n
		p.meter.addLocked(key, n)
	}
}

// kill ends all that is in flight here, and lets nothing new come.
func (p *process) kill() {
	p.stopped.Store(true)
	p.meter.mu.Lock()
	defer p.meter.mu.Unlock()
	p.dead = true
	for key, n := range p.held {
		p.meter.addLocked(key, -n)
	}
}
