package bench

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/inflight-go/inflight"
	"golang.org/x/sync/semaphore"
)

var key = inflight.Key{Org: "acme", Model: "glm"}

func newRegistry(b *testing.B, limits inflight.Limits) *inflight.Registry {
	b.Helper()
	reg, err := inflight.New(inflight.Config{Limits: inflight.Fixed(limits), SweepInterval: -1, MaxWaiters: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	return reg
}

// hold takes n slots and keeps them to the end of the benchmark.
func hold(b *testing.B, reg *inflight.Registry, n int, key func(i int) inflight.Key) {
	b.Helper()
	slots := make([]*inflight.Slot, n)
	for i := range slots {
		var err error
		if slots[i], err = reg.TryAcquire(key(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		for _, s := range slots {
			s.Release()
		}
	})
}

func same(int) inflight.Key { return key }

func numbered(i int) inflight.Key { return inflight.Key{Org: "org" + strconv.Itoa(i), Model: "glm"} }

// handle is as large as a slot's handle and as full of pointers.
type handle struct {
	_ *int
	_ [8]string
}

var sink *handle

// BenchmarkAcquire takes a slot and gives it back.
func BenchmarkAcquire(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		// What cannot be done without: two clock reads, two locks, one look-up, one handle.
		var mu sync.Mutex
		start, counts := time.Now(), map[inflight.Key]*int{key: new(int)}
		var at time.Duration
		for b.Loop() {
			h := new(handle)
			at = time.Since(start)
			mu.Lock()
			n := counts[key]
			*n++
			mu.Unlock()
			sink = h
			at -= time.Since(start)
			mu.Lock()
			*n--
			mu.Unlock()
		}
		_ = at
	})
	acquire := func(reg *inflight.Registry, key inflight.Key) func(b *testing.B) {
		return func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			for b.Loop() {
				slot, err := reg.TryAcquire(key)
				if err != nil {
					b.Fatal(err)
				}
				slot.Release()
			}
		}
	}
	all := inflight.Limits{Key: inflight.Unlimited, Org: inflight.Unlimited - 1, Model: inflight.Unlimited - 1, Total: inflight.Unlimited - 1}
	with := func(limits inflight.Limits, n int, held func(int) inflight.Key, k inflight.Key) func(b *testing.B) {
		return func(b *testing.B) {
			b.Helper()
			reg := newRegistry(b, limits)
			hold(b, reg, n, held)
			acquire(reg, k)(b)
		}
	}
	one := inflight.Limits{Key: inflight.Unlimited}
	b.Run("inflight/live-key", with(one, 1, same, key))
	b.Run("inflight/live-key/all-scopes", with(all, 1, same, key))
	b.Run("inflight/idle-key", with(one, 1, numbered, key))
	b.Run("inflight/idle-key/all-scopes", with(all, 1, numbered, key))
	b.Run("inflight/100000-keys", with(one, 100_000, numbered, numbered(7)))
	b.Run("inflight/1000000-slots", with(one, 1_000_000, same, key))
	b.Run("inflight/Acquire", func(b *testing.B) {
		reg := newRegistry(b, one)
		hold(b, reg, 1, same)
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			slot, err := reg.Acquire(ctx, key)
			if err != nil {
				b.Fatal(err)
			}
			slot.Release()
		}
	})
	b.Run("inflight/refused", func(b *testing.B) {
		reg := newRegistry(b, inflight.Limits{Key: 1})
		hold(b, reg, 1, same)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := reg.TryAcquire(key); err == nil {
				b.Fatal("admitted")
			}
		}
	})
	b.Run("x-sync-semaphore", func(b *testing.B) {
		sem := semaphore.NewWeighted(64)
		for b.Loop() {
			if !sem.TryAcquire(1) {
				b.Fatal("refused")
			}
			sem.Release(1)
		}
	})
	b.Run("channel", func(b *testing.B) {
		sem := make(chan struct{}, 64)
		for b.Loop() {
			sem <- struct{}{}
			<-sem
		}
	})
	b.Run("failsafe-bulkhead", func(b *testing.B) {
		sem := bulkhead.New[any](64)
		for b.Loop() {
			if !sem.TryAcquirePermit() {
				b.Fatal("refused")
			}
			sem.ReleasePermit()
		}
	})
}

// BenchmarkHandOver has goroutines pass one slot around, each of them waiting for it in turn.
func BenchmarkHandOver(b *testing.B) {
	run := func(b *testing.B, turn func(ctx context.Context) error) {
		b.Helper()
		const workers = 8
		b.ReportAllocs()
		ctx := b.Context()
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range b.N/workers + 1 {
					if err := turn(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	b.Run("inflight", func(b *testing.B) {
		reg := newRegistry(b, inflight.Limits{Key: 1})
		run(b, func(ctx context.Context) error {
			slot, err := reg.Acquire(ctx, key)
			if err == nil {
				pause()
				slot.Release()
			}
			return err
		})
	})
	b.Run("x-sync-semaphore", func(b *testing.B) {
		sem := semaphore.NewWeighted(1)
		run(b, func(ctx context.Context) error {
			err := sem.Acquire(ctx, 1)
			if err == nil {
				pause()
				sem.Release(1)
			}
			return err
		})
	})
}
