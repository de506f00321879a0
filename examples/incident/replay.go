package main

import (
	"errors"
	"sync"
	"testing/synctest"
	"time"
)

// An outcome is what a design made of the traffic.
type outcome struct {
	design            string
	admitted, refused int
	peak              int           // the most requests that were in flight at once, counted or not
	above             time.Duration // how long more than the limit were in flight
	course            []point       // over time
}

// A point is from when on so many requests are in flight.
type point struct {
	at       time.Duration
	inFlight int
}

// replayAll replays the requests against each design, one after the other. It must run in fake time.
func replayAll(requests []request, limit int) (_ []outcome, err error) {
	reg, err := newRegistry(limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reg.Close()) }()
	counter := &ttlCounter{ttl: 600 * time.Second, limit: limit}
	var outcomes []outcome
	for _, d := range []design{
		{name: "counter in a TTL cache", admit: counter.admit},
		{name: "slot given back at the response head", admit: admitTo(reg), atHead: true},
		{name: "inflight", admit: admitTo(reg)},
	} {
		outcomes = append(outcomes, replay(requests, limit, d))
	}
	return outcomes, nil
}

// replay has each request arrive at its time, and each that is admitted last for its time, in a goroutine of its own. It
// returns when the last of them has ended.
func replay(requests []request, limit int, d design) outcome {
	start := time.Now()
	meter := meter{start: start, limit: limit}
	refused := 0
	var admitted sync.WaitGroup
	for _, r := range requests {
		time.Sleep(r.at - time.Since(start))
		synctest.Wait() // lets what ends at this instant end before this request arrives
		release, ok := d.admit()
		if !ok {
			refused++
			continue
		}
		meter.add(1)
		admitted.Go(func() {
			time.Sleep(r.head - r.at)
			if d.atHead {
				release()
			}
			time.Sleep(r.end - r.head)
			if !d.atHead {
				release()
			}
			meter.add(-1)
		})
	}
	admitted.Wait()
	return outcome{
		design: d.name, admitted: len(requests) - refused, refused: refused,
		peak: meter.peak, above: meter.above, course: meter.course,
	}
}

// A meter sees what is truly in flight, whatever a design counts.
type meter struct {
	start time.Time
	limit int

	mu       sync.Mutex
	inFlight int
	peak     int
	above    time.Duration
	course   []point
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Since(m.start)
	if m.inFlight > m.limit {
		m.above += now - m.course[len(m.course)-1].at
	}
	m.inFlight += n
	m.peak = max(m.peak, m.inFlight)
	m.course = append(m.course, point{at: now, inFlight: m.inFlight})
}
