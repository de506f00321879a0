package main

import (
	"math"
	"runtime"

	"github.com/inflight-go/inflight"
)

// memory is heap after a collection, in bytes.
type memory struct {
	slot    float64 // per live slot: the handle and the registry's record
	swept   float64 // the same when a sweep has seen it
	key     float64 // per live key, beyond its slots
	kept    float64 // in all, when 100,000 slots of as many keys are released: records to use again
	idleKey float64 // how much that grows with each further key
}

func (m memory) lines() []line {
	show := func(name string, bytes float64) line { return line{name: name, bytes: number(bytes)} }
	return []line{
		title("Memory, heap after a collection"),
		show("live slot, with its handle", m.slot),
		show("the same after a sweep", m.swept),
		show("live key, beside its slots", m.key),
		show("in all, when 100,000 keys have become idle", m.kept),
		show("the same for each further key", m.idleKey),
	}
}

func measureMemory() memory {
	const slots, keys = 1_000_000, 100_000
	list := inTurn(2 * keys)
	live, swept, _ := heapOf(slots, list[:1])
	ofKeys, _, kept := heapOf(keys, list[:keys])
	_, _, keptOfMore := heapOf(2*keys, list)
	m := memory{slot: math.Round(live / slots), swept: math.Round(swept / slots), kept: kept}
	m.key = math.Round(ofKeys/keys) - m.slot
	m.idleKey = max(0, math.Round((keptOfMore-kept)/keys))
	return m
}

// heapOf is the heap of a registry with so many slots, spread over the keys, when a sweep has seen them, and when all are
// released.
func heapOf(slots int, keys []inflight.Key) (live, swept, released float64) {
	reg := newRegistry(unlimited)
	held := make([]*inflight.Slot, slots) // the caller's, and not counted
	empty := heap()
	for i := range held {
		held[i] = must(reg.TryAcquire(keys[i%len(keys)]))
	}
	live = heap() - empty
	reg.Sweep()
	swept = heap() - empty
	for i, s := range held {
		s.Release()
		held[i] = nil
	}
	released = heap() - empty
	runtime.KeepAlive(reg)
	runtime.KeepAlive(held)
	return live, swept, released
}

// heap is what collections leave of the heap: one may leave something for the next.
func heap() float64 {
	var stats runtime.MemStats
	for last := uint64(math.MaxUint64); ; last = stats.HeapAlloc {
		runtime.GC()
		runtime.ReadMemStats(&stats)
		if stats.HeapAlloc >= last-last/1000 {
			return float64(stats.HeapAlloc)
		}
	}
}
