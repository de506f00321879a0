package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/inflight-go/inflight"
	"golang.org/x/sync/semaphore"
)

const (
	acquireGroup = "Take a slot and give it back"
	sizeGroup    = "The same with many keys and slots"

	floor   = "floor"
	liveKey = "inflight"
	idleKey = "inflight, idle key"
	oneSlot = "inflight, 1 live slot"
	million = "inflight, 1,000,000 live slots"

	livePort = "map of maps of holders"
	idlePort = "map of maps of holders, idle key"
)

var unlimited = inflight.Limits{Key: inflight.Unlimited}

// allScopes are limits that count in every scope and refuse nobody.
var allScopes = inflight.Limits{
	Key: inflight.Unlimited - 1, Org: inflight.Unlimited - 1, Model: inflight.Unlimited - 1, Total: inflight.Unlimited - 1,
}

// acquireGroups are about taking a slot and giving it back.
func acquireGroups() []group {
	return []group{
		{name: acquireGroup, base: floor, rows: acquireRows()},
		{name: sizeGroup, base: oneSlot, noGC: true, rows: sizeRows(1)},
		{name: "The same, goroutines and CPUs", cpus: []int{1, 2, 4, 8}, base: floor, rows: []row{
			floorRow(floor, 1), contenders[0].row(true), contenders[1].row(true), contenders[5].row(true),
		}},
		{name: "Eight goroutines hand one slot around", base: "x/sync semaphore", rows: []row{
			{name: "inflight", setup: func() (func(n int), func()) {
				reg := newRegistry(inflight.Limits{Key: 1})
				return handOver(func(ctx context.Context) func() { return must(reg.Acquire(ctx, key)).Release }), func() {}
			}},
			{name: "x/sync semaphore", setup: func() (func(n int), func()) {
				s := semaphore.NewWeighted(1)
				return handOver(func(ctx context.Context) func() {
					_ = must(0, s.Acquire(ctx, 1))
					return func() { s.Release(1) }
				}), func() {}
			}},
		}},
	}
}

func acquireRows() []row {
	rows := []row{
		floorRow(floor, 1),
		contenders[0].row(true),
		contenders[0].row(false),
		heldRow("inflight, all scopes limited", allScopes, 1, 1),
		heldRow("inflight, idle key, all scopes limited", allScopes, 0, 1),
		{name: "inflight, Acquire", buys: contenders[0].buys, setup: func() (func(n int), func()) {
			reg := newRegistry(unlimited)
			release := hold(reg, 1, 1)
			return func(n int) {
				ctx := context.Background()
				for range n {
					must(reg.Acquire(ctx, key)).Release()
				}
			}, release
		}},
		{name: "inflight, refused", buys: contenders[0].buys, setup: func() (func(n int), func()) {
			reg := newRegistry(inflight.Limits{Key: 1})
			release := hold(reg, 1, 1)
			return func(n int) {
				for range n {
					_, err := reg.TryAcquire(key) //slotvet:ignore it is refused
					admitted(err != nil)
				}
			}, release
		}},
	}
	for _, c := range contenders[1:] {
		rows = append(rows, c.row(true))
		if c.name == livePort {
			rows = append(rows, c.row(false))
		}
	}
	return rows
}

// row measures a contender beside a live holder of the same key, or without any.
func (c contender) row(live bool) row {
	if !live {
		return row{name: c.name + ", idle key", buys: c.buys, setup: func() (func(n int), func()) {
			return c.make(64).cycle, func() {}
		}}
	}
	return row{name: c.name, buys: c.buys, setup: func() (func(n int), func()) {
		l := c.make(64)
		release, ok := l.take("")
		admitted(ok)
		return l.cycle, release
	}}
}

// sizeRows take slots of all keys in turn, in an order that no cache foresees. A test has them a part of the size.
func sizeRows(part int) []row {
	return []row{
		floorRow(floor, 1),
		heldRow(oneSlot, unlimited, 1, 1),
		heldRow("inflight, 10,000 live slots", unlimited, 10_000/part, 1),
		heldRow(million, unlimited, 1_000_000/part, 1),
		floorRow("floor, 1,000 keys", 1000/part),
		heldRow("inflight, 1,000 keys", unlimited, 1000/part, 1000/part),
		floorRow("floor, 100,000 keys", 100_000/part),
		heldRow("inflight, 100,000 keys", unlimited, 100_000/part, 100_000/part),
		heldRow("inflight, 100,000 keys, 1,000,000 live slots", unlimited, 1_000_000/part, 100_000/part),
	}
}

// heldRow measures inflight beside so many live slots over so many keys.
func heldRow(name string, limits inflight.Limits, slots, keys int) row {
	return row{name: name, buys: contenders[0].buys, setup: func() (func(n int), func()) {
		reg := newRegistry(limits)
		release := hold(reg, slots, keys)
		next := inTurn(keys)
		return func(n int) {
			for i := range n {
				slot, err := reg.TryAcquire(next[i%len(next)])
				admitted(err == nil)
				slot.Release()
			}
		}, release
	}}
}

// floorRow measures what cannot be done without: two clock reads, two pairs of lock and unlock, one look-up of the key, and
// one allocation of the handle's size.
func floorRow(name string, keys int) row {
	type counter struct {
		inUse int
		last  *inflight.Slot // so that the handle is not left out
	}
	return row{name: name, setup: func() (func(n int), func()) {
		var mu sync.Mutex
		start, counters, next := time.Now(), map[inflight.Key]*counter{}, inTurn(keys)
		for _, k := range next {
			counters[k] = new(counter)
		}
		var held time.Duration
		return func(n int) {
			for i := range n {
				handle := new(inflight.Slot)
				at := time.Since(start)
				mu.Lock()
				c := counters[next[i%len(next)]]
				c.inUse++
				c.last = handle
				mu.Unlock()
				until := time.Since(start)
				mu.Lock()
				c.inUse--
				held += until - at
				mu.Unlock()
			}
		}, func() {}
	}}
}

// hold takes slots, evenly over the keys, until release is called.
func hold(reg *inflight.Registry, slots, keys int) (release func()) {
	held := make([]*inflight.Slot, slots)
	for i := range held {
		held[i] = must(reg.TryAcquire(numbered(i % keys)))
	}
	return func() {
		for _, s := range held {
			s.Release()
		}
	}
}

// numbered is the i-th key.
func numbered(i int) inflight.Key {
	if i == 0 {
		return key
	}
	return inflight.Key{Org: "org" + strconv.Itoa(i), Model: key.Model}
}

// inTurn is so many keys, shuffled.
func inTurn(keys int) []inflight.Key {
	list := make([]inflight.Key, keys)
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(keys) {
		list[i] = numbered(k)
	}
	return list
}

// handOver has goroutines take turns. Each lets the others run while it holds, so that they come to wait.
func handOver(take func(context.Context) (release func())) func(n int) {
	return spread(func(n int) {
		ctx := context.Background()
		for range n {
			release := take(ctx)
			runtime.Gosched()
			release()
		}
	}, 8)
}
