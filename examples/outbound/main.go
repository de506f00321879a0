// Command outbound asks a model provider for many streams and stays inside the provider's cap on what is in flight for
// an API key and model. Requests wait here for their turn, for a bounded time, instead of being turned down there. When
// the provider does answer 429, they come again after its Retry-After, a few times, and hold no slot until then.
//
//	go run ./examples/outbound                                                        # with an embedded provider
//	go run ./examples/outbound -url https://host/v1 -key sk-... -model m -n 20 -concurrency 4
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/inflight-go/inflight"
)

const (
	maxRetries    = 4               // of one request
	maxRetryAfter = 2 * time.Minute // a provider that wants us later than this is out of order
)

type config struct {
	url, key, model string
	n, concurrency  int
	wait            time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var cfg config
	flag.StringVar(&cfg.url, "url", "", "base `URL` of an OpenAI-compatible API; without it an embedded provider answers")
	flag.StringVar(&cfg.key, "key", "sk-demo", "API `key`")
	flag.StringVar(&cfg.model, "model", "glm", "what to ask")
	flag.IntVar(&cfg.n, "n", 40, "how many requests to make")
	flag.IntVar(&cfg.concurrency, "concurrency", 4, "the provider's cap for the key and model")
	flag.DurationVar(&cfg.wait, "wait", time.Minute, "how long a request may wait for its turn")
	flag.Parse()
	err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes the requests and prints what happened. It fails if one failed, or if the provider saw more than its cap.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.n < 1 || cfg.concurrency < 1 {
		return errors.New("-n and -concurrency must be at least 1")
	}
	fake := &provider{limit: cfg.concurrency, grumpy: 9, pace: 20 * time.Millisecond}
	if cfg.url == "" {
		server := httptest.NewServer(fake)
		defer server.Close()
		cfg.url = server.URL
	}
	c, err := newClient(cfg)
	if err != nil {
		return err
	}
	defer c.close()

	todo, failures := make(chan int, cfg.n), make(chan error, cfg.n)
	for i := range cfg.n {
		todo <- i
	}
	close(todo)
	var callers sync.WaitGroup
	for range 3 * cfg.concurrency { // more than may run, so that there is somebody to wait
		callers.Go(func() {
			for i := range todo {
				if _, err := c.ask(ctx, fmt.Sprintf("Say something about the number %d.", i)); err != nil {
					failures <- fmt.Errorf("request %d: %w", i, err)
				}
			}
		})
	}
	callers.Wait()
	close(failures)

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "requests\tfailed\tpeak here\tpeak at the provider\tits cap\t429s seen\tretries\twaits\t")
	stats := c.registry.Stats()
	_, _ = fmt.Fprintf(table, "%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t\n", cfg.n, len(failures), stats.PeakPerKey, fake.saw(),
		cfg.concurrency, c.turnedDown.Load(), c.retries.Load(), stats.Waited)
	err = table.Flush()
	if n := len(failures); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d failed, the first of them: %w", n, <-failures))
	}
	if fake.peak > fake.limit {
		err = errors.Join(err, errors.New("the provider saw more than its cap"))
	}
	return err
}

// A client asks for streams, as many at once as the limit lets it.
type client struct {
	config

	http     *http.Client
	registry *inflight.Registry

	turnedDown, retries atomic.Int64
}

func newClient(cfg config) (*client, error) {
	registry, err := inflight.New(inflight.Config{
		Name:   "outbound",
		Limits: inflight.Fixed(inflight.Limits{Key: cfg.concurrency}),
	})
	if err != nil {
		return nil, err
	}
	return &client{config: cfg, registry: registry, http: &http.Client{
		Transport: inflight.NewTransport(&http.Transport{}, registry, inflight.TransportConfig{Key: keyOf, Wait: cfg.wait}),
	}}, nil
}

func (c *client) close() {
	c.http.CloseIdleConnections()
	_ = c.registry.Close()
}

// keyOf names what the provider counts: an API key, of which logs should show no more than a fingerprint, and a model.
func keyOf(r *http.Request) (inflight.Key, error) {
	model, err := inflight.JSONField(r, "model", 0)
	key := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	return inflight.Key{Org: fmt.Sprintf("%s#%x", r.URL.Host, key[:4]), Model: model}, err
}

// ask returns the answer to a prompt. It comes again when the provider says so, but not for ever.
func (c *client) ask(ctx context.Context, prompt string) (answer string, err error) {
	for left := maxRetries; ; left-- {
		var later *laterError
		answer, err = c.try(ctx, prompt)
		if !errors.As(err, &later) || left == 0 || later.after > maxRetryAfter {
			return answer, err
		}
		c.retries.Add(1)
		select { // the body is closed, so the slot may be somebody else's meanwhile
		case <-time.After(later.after):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// A laterError is a 429, or a 503 that says when to come again.
type laterError struct {
	status string
	after  time.Duration
}

func (e *laterError) Error() string { return fmt.Sprintf("%s, come again after %v", e.status, e.after) }

// try makes one request. The slot is taken by Do and given back with the end of the body.
func (c *client) try(ctx context.Context, prompt string) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": c.model, "stream": true, "messages": []map[string]string{{"role": "user", "content": prompt}},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err // errors.Is(err, inflight.ErrLimit): our turn did not come within -wait
	}
	defer func() { _ = resp.Body.Close() }()
	after := resp.Header.Get("Retry-After")
	switch {
	case resp.StatusCode == http.StatusOK:
		return readStream(resp.Body)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable && after != "":
		c.turnedDown.Add(1)
		return "", &laterError{resp.Status, parseRetryAfter(after, time.Now())}
	default:
		return "", errors.New(resp.Status)
	}
}

// readStream puts an answer together. It reads to the end, not only to the last event: when the body ends, so has the
// request at the provider. To close it earlier would free the slot while the provider still counts.
func readStream(body io.Reader) (string, error) {
	var answer strings.Builder
	done := false
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if done = done || data == "[DONE]"; !ok || done {
			continue
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return "", err
		}
		for _, choice := range event.Choices {
			answer.WriteString(choice.Delta.Content)
		}
	}
	if err := lines.Err(); err != nil || !done {
		return "", errors.Join(errors.New("the stream broke off"), err)
	}
	return answer.String(), nil
}

// parseRetryAfter understands seconds and dates. Without either it is a second.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, date.Sub(now))
	}
	return time.Second
}
