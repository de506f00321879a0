package inflight_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/inflight-go/inflight"
)

// exampleRegistry admits one request per key.
func exampleRegistry() *inflight.Registry {
	registry, err := inflight.New(inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 1})})
	if err != nil {
		panic(err)
	}
	return registry
}

// An API in front of models: the customer is in a header, the model in the body. While one stream runs, the next request
// for the same model is refused.
func ExampleMiddleware() {
	registry := exampleRegistry()
	defer func() { _ = registry.Close() }()

	limited := inflight.Middleware(registry, inflight.MiddlewareConfig{
		Key: func(r *http.Request) (inflight.Key, error) {
			model, err := inflight.JSONField(r, "model", 0)
			return inflight.Key{Org: r.Header.Get("X-Org"), Model: model}, err
		},
		Skip:   func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		Reject: inflight.RejectOpenAI,
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // whole, as if Key had not looked into it
		_, _ = fmt.Fprintf(w, "data: hello from %s\n\n", inflight.FromContext(r.Context()).Key().Model)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the stream goes on until the client leaves
	})
	server := httptest.NewServer(limited(handler))
	defer server.Close()

	post := func(model string) *http.Response {
		body := strings.NewReader(`{"model":"` + model + `"}`)
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL, body)
		if err != nil {
			panic(err)
		}
		r.Header.Set("X-Org", "acme")
		res, err := server.Client().Do(r)
		if err != nil {
			panic(err)
		}
		return res
	}
	stream := post("glm")
	event, _ := bufio.NewReader(stream.Body).ReadString('\n')
	fmt.Print(stream.StatusCode, " ", event)

	refused := post("glm")
	body, _ := io.ReadAll(refused.Body)
	fmt.Println(refused.StatusCode, "retry after", refused.Header.Get("Retry-After"), "s")
	fmt.Println(string(body))

	other := post("qwen")
	fmt.Println(other.StatusCode)
	for _, res := range []*http.Response{stream, refused, other} {
		_ = res.Body.Close()
	}
	// Output:
	// 200 data: hello from glm
	// 429 retry after 1 s
	// {"error":{"message":"Too many requests in flight.","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}
	// 200
}

// A handler answers at once and leaves the work to a goroutine, which goes on holding the slot.
func ExampleTake() {
	registry := exampleRegistry()
	defer func() { _ = registry.Close() }()
	key := inflight.Key{Org: "acme", Model: "glm"}

	finish := make(chan struct{})
	limited := inflight.Middleware(registry, inflight.MiddlewareConfig{
		Key: func(*http.Request) (inflight.Key, error) { return key, nil },
	})
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slot := inflight.Take(r.Context())
		go func() {
			defer slot.Release()
			<-finish
		}()
		w.WriteHeader(http.StatusAccepted)
	}))

	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/jobs", http.NoBody))
	fmt.Println(answer.Code, "in use", registry.InUse(key))

	close(finish)
	fmt.Println("drained:", registry.Shutdown(context.Background()))
	fmt.Println("in use", registry.InUse(key))
	// Output:
	// 202 in use 1
	// drained: <nil>
	// in use 0
}

// A client that stays inside what its provider allows: one request at a time, to the last byte of its response.
func ExampleNewTransport() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer provider.Close()
	registry := exampleRegistry()
	defer func() { _ = registry.Close() }()

	client := &http.Client{
		Transport: inflight.NewTransport(provider.Client().Transport, registry, inflight.TransportConfig{
			Key:  func(r *http.Request) (inflight.Key, error) { return inflight.Key{Model: r.URL.Host}, nil },
			Wait: 20 * time.Millisecond, // for the turn of this request
		}),
	}
	get := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, provider.URL, http.NoBody)
		if err != nil {
			return nil, err
		}
		return client.Do(r)
	}
	first, err := get()
	fmt.Println("first:", first.StatusCode, err)

	_, err = get()
	fmt.Println("refused while the first is unread:", errors.Is(err, inflight.ErrLimit))

	text, _ := io.ReadAll(first.Body)
	_ = first.Body.Close()
	fmt.Printf("read %q\n", text)

	second, err := get()
	fmt.Println("second:", second.StatusCode, err)
	_ = second.Body.Close()
	// Output:
	// first: 200 <nil>
	// refused while the first is unread: true
	// read "hello"
	// second: 200 <nil>
}
