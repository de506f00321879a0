package inflight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/inflight-go/inflight"
)

// TryAcquire admits or refuses at once. The error says which limit refused; it is for logs, not for clients.
//
//slotvet:ignore the few are held to the end of the example
func ExampleRegistry_TryAcquire() {
	registry, err := inflight.New(inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 2, Org: 3})})
	if err != nil {
		panic(err)
	}
	defer func() { _ = registry.Close() }()

	for _, model := range []string{"glm", "glm", "glm", "qwen", "qwen"} {
		slot, err := registry.TryAcquire(inflight.Key{Org: "acme", Model: model})
		if errors.Is(err, inflight.ErrLimit) {
			fmt.Println(err)
			continue
		}
		defer slot.Release()
		fmt.Println("admitted", slot.Key())
	}
	// Output:
	// admitted acme/glm
	// admitted acme/glm
	// inflight: key limit reached for acme/glm: 2 of 2 in use
	// admitted acme/qwen
	// inflight: org limit reached for acme/qwen: 3 of 3 in use
}

// A job that needs a model and a GPU takes both or neither: two units of the one and two of the other.
func ExampleRegistry_Acquire() {
	gpus := inflight.Key{Model: "gpu"}
	registry, err := inflight.New(inflight.Config{Limits: func(k inflight.Key) inflight.Limits {
		if k == gpus {
			return inflight.Limits{Key: 4}
		}
		return inflight.Limits{Key: 100}
	}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = registry.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	big := []inflight.Option{inflight.Also(gpus), inflight.Weight(2)}
	first, err := registry.Acquire(ctx, inflight.Key{Org: "acme", Model: "glm"}, big...)
	fmt.Println(first.Weight(), "for", first.Key(), err)
	second, err := registry.Acquire(ctx, inflight.Key{Org: "zebra", Model: "glm"}, big...)
	fmt.Println(second.Weight(), "for", second.Key(), err)
	fmt.Println("GPUs in use:", registry.InUse(gpus))

	go first.Release() // makes room for the third, which waits for it
	third, err := registry.Acquire(ctx, inflight.Key{Org: "acme", Model: "qwen"}, big...)
	fmt.Println(third.Weight(), "for", third.Key(), err)

	second.Release()
	third.Release()
	fmt.Println("GPUs in use:", registry.InUse(gpus))
	// Output:
	// 2 for acme/glm <nil>
	// 2 for zebra/glm <nil>
	// GPUs in use: 4
	// 2 for acme/qwen <nil>
	// GPUs in use: 0
}

// A registry whose unit is the byte bounds the memory that uploads may take at the same time: in all, and for one
// customer.
//
//slotvet:ignore the few are held to the end of the example
func ExampleWeight() {
	const MiB = 1 << 20
	memory, err := inflight.New(inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 24 * MiB, Total: 32 * MiB})})
	if err != nil {
		panic(err)
	}
	defer func() { _ = memory.Close() }()

	for _, upload := range []struct {
		org string
		mib int
	}{{"acme", 16}, {"acme", 16}, {"acme", 8}, {"zebra", 16}, {"zebra", 8}} {
		r := httptest.NewRequest(http.MethodPost, "/files", bytes.NewReader(make([]byte, upload.mib*MiB)))
		slot, err := memory.TryAcquire(inflight.Key{Org: upload.org}, inflight.Weight(int(r.ContentLength)))
		var full *inflight.LimitError
		if errors.As(err, &full) {
			fmt.Printf("%v limit: %d + %d of %d MiB\n", full.Scope, full.InUse/MiB, full.Weight/MiB, full.Limit/MiB)
			continue
		}
		defer slot.Release() // when the body has been dealt with
		fmt.Printf("admitted, %d MiB in use\n", memory.Stats().InUse/MiB)
	}
	// Output:
	// admitted, 16 MiB in use
	// key limit: 16 + 16 of 24 MiB
	// admitted, 24 MiB in use
	// total limit: 24 + 16 of 32 MiB
	// admitted, 32 MiB in use
}

// Work that runs under the context of its slot can be told to stop, and learns why. It counts until it has stopped.
func ExampleSlot_Context() {
	registry, err := inflight.New(inflight.Config{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = registry.Close() }()

	key := inflight.Key{Org: "acme", Model: "glm"}
	slot, err := registry.TryAcquire(key)
	if err != nil {
		panic(err)
	}
	ctx := slot.Context(context.Background())

	registry.Cancel(slot.ID(), errors.New("maintenance at noon"))
	<-ctx.Done()
	fmt.Println(ctx.Err(), "because of", context.Cause(ctx))
	fmt.Println("in use:", registry.InUse(key))
	slot.Release()
	fmt.Println("in use:", registry.InUse(key))
	// Output:
	// context canceled because of maintenance at noon
	// in use: 1
	// in use: 0
}

// Limits of a table can change while the registry runs. OnChange lets those who wait have what is new at once.
//
//slotvet:ignore the second acquire is refused
func ExampleLimitTable() {
	table := inflight.NewLimitTable(inflight.Limits{Key: 1})
	registry, err := inflight.New(inflight.Config{Limits: table.Limits})
	if err != nil {
		panic(err)
	}
	defer func() { _ = registry.Close() }()
	defer table.OnChange(registry.LimitsChanged)()

	key := inflight.Key{Org: "acme", Model: "glm"}
	slot, err := registry.TryAcquire(key)
	if err != nil {
		panic(err)
	}
	defer slot.Release()
	_, err = registry.TryAcquire(key)
	fmt.Println(err)

	raised := make(chan error)
	go func() { raised <- table.Set(inflight.Key{Org: "acme"}, inflight.Limits{Key: 2}) }()
	second, err := registry.Acquire(context.Background(), key) // waits until the limit is raised
	if err != nil {
		panic(err)
	}
	defer second.Release()
	fmt.Println("raised:", <-raised, "in use:", registry.InUse(key))
	// Output:
	// inflight: key limit reached for acme/glm: 1 of 1 in use
	// raised: <nil> in use: 2
}
