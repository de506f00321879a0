package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a client with a limit of 1 of a provider that is this handler.
func open(t *testing.T, h http.HandlerFunc, wait time.Duration) *client {
	t.Helper()
	server := httptest.NewServer(h)
	c, err := newClient(config{url: server.URL, key: "sk-1", model: "glm", concurrency: 1, wait: wait})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.close()
		server.Close()
	})
	return c
}

// turnDown answers 429.
func turnDown(w http.ResponseWriter, after string) {
	w.Header().Set("Retry-After", after)
	w.WriteHeader(http.StatusTooManyRequests)
}

// The provider's cap is reached and never passed, whoever was turned down is answered in the end, and some waited.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	cfg := config{key: "sk-1", model: "glm", n: 20, concurrency: 3, wait: time.Minute}
	require.NoError(t, run(t.Context(), cfg, &out))
	row := regexp.MustCompile(`(?m)^ +20 +0 +3 +3 +3 +(\d) +(\d) +(\d+)$`).FindStringSubmatch(out.String())
	require.NotNil(t, row, out.String())
	require.Equal(t, "2", row[1], "one in nine was turned down")
	require.Equal(t, row[1], row[2])
	require.NotEqual(t, "0", row[3])
}

// The provider counts whom it turns down too, so that its peak would show a client that asks for too much.
func TestProviderSeesTooMuch(t *testing.T) {
	p := &provider{limit: 1, grumpy: 9, pace: time.Hour}
	c := open(t, p.ServeHTTP, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.try(ctx, "")
		done <- err
	}()
	peak := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.peak
	}
	require.Eventually(t, func() bool { return peak() == 1 }, 10*time.Second, time.Millisecond)
	resp, err := http.Post(c.url, "", http.NoBody) // past the client's limit
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, 2, peak())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	http.DefaultClient.CloseIdleConnections()
}

func TestRunSaysWhatFailed(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var out bytes.Buffer
	err := run(t.Context(), config{url: server.URL, n: 3, concurrency: 1, wait: time.Minute}, &out)
	require.ErrorContains(t, err, "3 failed")
	require.ErrorContains(t, err, "404")
	require.Regexp(t, `(?m)^ +3 +3 +1 +\? +1 +0 +0 +\d+$`, out.String())

	require.ErrorContains(t, run(t.Context(), config{n: 1}, &out), "-concurrency")
	require.ErrorContains(t, run(t.Context(), config{concurrency: 1}, &out), "-n")
}

func TestAsk(t *testing.T) {
	c := open(t, (&provider{limit: 1, grumpy: 9}).ServeHTTP, 0)
	answer, err := c.ask(t.Context(), "Hello")
	require.NoError(t, err)
	require.Equal(t, story, answer)
	require.Zero(t, c.registry.Stats().InUse)
}

// A request is tried a few times, and no more.
func TestRetriesAreBounded(t *testing.T) {
	var asked atomic.Int64
	c := open(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		turnDown(w, "0")
	}, 0)
	_, err := c.ask(t.Context(), "")
	require.ErrorContains(t, err, "429")
	require.EqualValues(t, 1+maxRetries, asked.Load())
	require.EqualValues(t, maxRetries, c.retries.Load())
}

// A request does not come again if that is too far off.
func TestRetryTooLate(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, _ *http.Request) { turnDown(w, "3600") }, 0)
	_, err := c.ask(t.Context(), "")
	require.ErrorContains(t, err, "1h0m0s")
	require.Zero(t, c.retries.Load())
}

// A 503 that says when to come again is like a 429, another one is an error.
func TestUnavailable(t *testing.T) {
	var asked atomic.Int64
	c := open(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}, 0)
	_, err := c.ask(t.Context(), "")
	require.ErrorContains(t, err, "503")
	require.EqualValues(t, 2, asked.Load())
}

// Who waits to come again holds no slot, and heeds the context.
func TestNoSlotWhileWaitingToRetry(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, _ *http.Request) { turnDown(w, "60") }, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := c.ask(ctx, "")
		done <- err
	}()
	require.Eventually(t, func() bool { return c.retries.Load() == 1 }, 10*time.Second, time.Millisecond)
	require.Zero(t, c.registry.Stats().InUse)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A turn that does not come in time is a full limit, of the key and model, and the provider hears nothing of it. Another
// model is not affected, nor is another key.
func TestTurnDoesNotCome(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: [DONE]\n\n") }, time.Millisecond)
	req, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(`{"model":"glm"}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-1")
	key, err := keyOf(req)
	require.NoError(t, err)
	require.Equal(t, "glm", key.Model)
	require.NotContains(t, fmt.Sprint(key), "sk-1")
	slot, err := c.registry.TryAcquire(key)
	require.NoError(t, err)
	defer slot.Release()

	_, err = c.ask(t.Context(), "")
	require.ErrorIs(t, err, inflight.ErrLimit)
	c.model = "llama"
	_, err = c.ask(t.Context(), "")
	require.NoError(t, err)
	c.model, c.key = "glm", "sk-2"
	_, err = c.ask(t.Context(), "")
	require.NoError(t, err)
}

func TestReadStream(t *testing.T) {
	const event = `data: {"choices":[{"delta":{"content":"so"}}]}` + "\n\n"
	answer, err := readStream(strings.NewReader(": hello\n\n" + event + event + "data: [DONE]\n\ndata: {more\n"))
	require.NoError(t, err)
	require.Equal(t, "soso", answer)
	_, err = readStream(strings.NewReader(event))
	require.ErrorContains(t, err, "broke off")
	_, err = readStream(strings.NewReader("data: {\n"))
	require.Error(t, err)
	cut := errors.New("cut")
	_, err = readStream(io.MultiReader(strings.NewReader("data: [DONE]\n\n"), failing{cut}))
	require.ErrorIs(t, err, cut)
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, "": time.Second, "soon": time.Second, "-1": time.Second, "99999999999": time.Second,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		require.Equal(t, want, parseRetryAfter(value, now), value)
	}
}
