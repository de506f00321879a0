package main

import (
	"sync"
	"time"
)

// A meter sees what is truly in flight at each limit over all processes, whatever a design counts.
type meter struct {
	limits []int

	mu    sync.Mutex // guards what follows
	gates []gate
	since time.Time // when it began to measure
	width time.Duration
	bins  []bin // the course of what is in flight at the first limit, in stretches of this width; none if that is 0
}

// A gate is what is in flight at one limit.
type gate struct {
	inUse, peak int
	used        float64   // in unit-seconds, since the meter began to measure
	at          time.Time // until when that is
}

// A bin is a stretch of a course.
type bin struct {
	used float64 // in unit-seconds
	peak int
}

func newMeter(limits []int) *meter {
	m := &meter{limits: limits, gates: make([]gate, len(limits))}
	m.begin(0)
	return m
}

// begin measures anew, and records the course of the first limit if the width of the bins is not 0.
func (m *meter) begin(width time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since, m.width, m.bins = time.Now(), width, nil
	for i := range m.gates {
		g := &m.gates[i]
		g.used, g.at, g.peak = 0, m.since, g.inUse
	}
}

// addLocked notes that n more are in flight.
func (m *meter) addLocked(limit, n int) {
	g, now := &m.gates[limit], time.Now()
	recording := limit == 0 && m.width > 0
	if recording {
		m.courseLocked(g, now)
	}
	g.used += float64(g.inUse) * now.Sub(g.at).Seconds()
	g.at = now
	g.inUse += n
	g.peak = max(g.peak, g.inUse)
	if recording {
		last := &m.bins[len(m.bins)-1]
		last.peak = max(last.peak, g.inUse)
	}
}

// courseLocked fills the bins up to now.
func (m *meter) courseLocked(g *gate, now time.Time) {
	for at := g.at; ; {
		i := int(at.Sub(m.since) / m.width)
		if i == len(m.bins) {
			m.bins = append(m.bins, bin{peak: g.inUse})
		}
		ends := m.since.Add(time.Duration(i+1) * m.width)
		if now.Before(ends) {
			m.bins[i].used += float64(g.inUse) * now.Sub(at).Seconds()
			return
		}
		m.bins[i].used += float64(g.inUse) * ends.Sub(at).Seconds()
		at = ends
	}
}

// room says whether a tenth of a limit, and at least one, is not in use.
func (m *meter) room(limit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limits[limit]-m.gates[limit].inUse >= max(1, m.limits[limit]/10)
}

// A reading is what was measured since begin.
type reading struct {
	utilisation float64 // in use by limit, over time and all limits
	peak        float64 // the most that was in use of a limit, by that limit
	bins        []bin
}

func (m *meter) read() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r reading
	var used, limits float64
	for i := range m.gates {
		m.addLocked(i, 0)
		used += m.gates[i].used
		limits += float64(m.limits[i])
		r.peak = max(r.peak, float64(m.gates[i].peak)/float64(m.limits[i]))
	}
	r.utilisation = used / limits / time.Since(m.since).Seconds()
	r.bins = m.bins
	return r
}
