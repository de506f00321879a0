package main

import (
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A holdUp is how long acquires had to wait while somebody read from the registry.
type holdUp struct {
	read string
	// longest is the longest TryAcquire or Release during a read: the lower quartile of all reads, as what disturbs the
	// machine meanwhile is counted too.
	longest time.Duration
	worst   time.Duration // of all reads
	took    time.Duration // by the read itself, the lower quartile again
}

// nothing is the read that holds up nobody: it shows what the machine does.
const nothing = "nothing, for 5 ms"

// secondSweep is how long a sweep takes that finds so many slots of one key, all seen before and none held long.
func secondSweep(slots, sweeps int) time.Duration {
	reg := newRegistry(unlimited)
	defer hold(reg, slots, 1)()
	reg.Sweep()
	var took []time.Duration
	for range sweeps {
		start := time.Now()
		reg.Sweep()
		took = append(took, time.Since(start))
	}
	return quantile(took, quartile)
}

// holdUps measures reads of a registry with so many live slots over so many keys.
func holdUps(slots, keys, reads int) []holdUp {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection holds up everybody and is not what is asked
	var measured []holdUp

	var reg *inflight.Registry
	var took, longest []time.Duration
	release := func() {}
	for range 5 { // a slot is new to a sweep only once
		release()
		runtime.GC()
		reg = newRegistry(unlimited)
		release = hold(reg, slots, keys)
		t, l := watch(reg, func() { reg.Sweep() })
		took, longest = append(took, t), append(longest, l)
	}
	defer release()
	measured = append(measured, summary("Sweep that has seen none of them", took, longest))

	all := prometheus.NewRegistry()
	all.MustRegister(metrics.NewCollector(reg))
	exposition := promhttp.HandlerFor(all, promhttp.HandlerOpts{})
	for _, r := range []struct {
		name string
		read func()
	}{
		{"Sweep that has seen all of them", func() { reg.Sweep() }},
		{"Stats", func() { reg.Stats() }},
		{"Slots(500)", func() { reg.Slots(500) }},
		{"Keys(50)", func() { reg.Keys(50) }},
		{"Prometheus scrape", func() {
			w := httptest.NewRecorder()
			exposition.ServeHTTP(w, request())
			_ = must(io.Copy(io.Discard, w.Body))
		}},
		{nothing, func() {
			until := time.Now()
			for start := until; until.Sub(start) < 5*time.Millisecond; {
				until = time.Now()
			}
		}},
	} {
		runtime.GC()
		var took, longest []time.Duration
		for range reads {
			t, l := watch(reg, r.read)
			took, longest = append(took, t), append(longest, l)
		}
		measured = append(measured, summary(r.name, took, longest))
	}
	return measured
}

func summary(read string, took, longest []time.Duration) holdUp {
	return holdUp{read: read, longest: quantile(longest, quartile), worst: slices.Max(longest), took: quantile(took, quartile)}
}

// watch reads while a goroutine acquires and releases without pause, and returns how long the read took, and the longest
// that a TryAcquire or Release took.
func watch(reg *inflight.Registry, read func()) (took, longest time.Duration) {
	var done atomic.Bool
	running, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		cycle(reg, key, 1000) // warm
		close(running)
		var longest time.Duration
		for last, more := time.Now(), true; more; {
			more = !done.Load() // once more after the read: the first call may have been held up all along
			slot := must(reg.TryAcquire(key))
			acquired := time.Now()
			slot.Release()
			released := time.Now()
			longest = max(longest, acquired.Sub(last), released.Sub(acquired))
			last = released
		}
		result <- longest
	}()
	<-running
	start := time.Now()
	read()
	took = time.Since(start)
	done.Store(true)
	return took, <-result
}

func (h holdUp) line() line {
	return line{name: h.read, time: duration(float64(h.longest)), compared: fmt.Sprintf("at worst %s; the read took %s",
		duration(float64(h.worst)), duration(float64(h.took)))}
}
