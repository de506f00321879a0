package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/inflight-go/inflight"
)

// demoLimits are the limits of the demo, as they would stand in a file.
const demoLimits = `{
	"defaults": {"key": 8},
	"rules": [
		{"org": "acme", "limits": {"key": 12}},
		{"org": "acme", "model": "glm", "limits": {"key": 20}}
	]
}`

// A load says how hard the demo presses.
type load struct {
	clients int
	lasting time.Duration // how long clients go on beginning requests
}

// A census counts by itself what is going on, so that the registry is not judged by its own numbers: requests by
// standing between the gateway and the model server, refusals by asking the clients.
type census struct {
	mu   sync.Mutex
	rows map[inflight.Key]*row // those of the keys, and that of all under inflight.Key{}
	err  error                 // the first thing that went wrong in a client
}

// A row is about one key.
type row struct{ now, peak, admitted, refused, aborted int }

// demo runs a gateway, puts load on it, lets it drain and prints what happened. It fails if a peak was above its limit,
// if anything is left in use, or if the registry and the census do not agree.
func demo(ctx context.Context, l load, stdout io.Writer, log *slog.Logger) error {
	limits := inflight.NewLimitTable(inflight.Limits{})
	if err := json.Unmarshal([]byte(demoLimits), limits); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &census{rows: make(map[inflight.Key]*row)}
	registry, err := newRegistry(limits.Limits, log)
	if err != nil {
		return err
	}
	g := newGateway(registry, nil, c.counted(newModelServer(50)), 0, patience, log)
	_, _ = fmt.Fprintf(stdout, "limits: %s\n%d clients for %v ...\n\n", describe(limits), l.clients, l.lasting)

	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- g.serve(serving, listener, 10*time.Second) }()
	c.press(ctx, "http://"+listener.Addr().String(), l)
	stopServing() // the clients are gone, what they aborted drains
	if err := errors.Join(<-served, c.err, ctx.Err()); err != nil {
		return err
	}
	return c.report(stdout, g.registry, limits)
}

// demoKeys are three organisations, each with two models.
func demoKeys() (keys []inflight.Key) {
	for _, org := range []string{"acme", "globex", "initech"} {
		for _, model := range models {
			keys = append(keys, inflight.Key{Org: org, Model: model})
		}
	}
	return keys
}

// note changes the rows that a key counts in.
func (c *census) note(k inflight.Key, change func(*row)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range []inflight.Key{k, {}} {
		if c.rows[k] == nil {
			c.rows[k] = &row{}
		}
		change(c.rows[k])
	}
}

// counted counts who is inside next, by API key and body.
func (c *census) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := keyOf(r)
		if err != nil {
			fail(w, r, http.StatusInternalServerError, "", err.Error())
			return
		}
		c.note(key, func(r *row) {
			r.admitted++
			r.now++
			r.peak = max(r.peak, r.now)
		})
		defer c.note(key, func(r *row) { r.now-- })
		next.ServeHTTP(w, r)
	})
}

// press runs the clients, who share the keys evenly, and returns when the last one is done.
func (c *census) press(ctx context.Context, url string, l load) {
	http := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.clients}}
	defer http.CloseIdleConnections()
	closing, cancel := context.WithTimeout(ctx, l.lasting)
	defer cancel()
	keys := demoKeys()
	var clients sync.WaitGroup
	for i := range l.clients {
		client := client{http, url + chatPath, keys[i%len(keys)], c}
		if i%4 == 0 {
			client.url = url + messagesPath
		}
		clients.Go(func() {
			for closing.Err() == nil {
				if err := client.ask(ctx); err != nil {
					c.mu.Lock()
					c.err = cmp.Or(c.err, err)
					c.mu.Unlock()
					return
				}
			}
		})
	}
	clients.Wait()
}

// A client asks for streams, one after another.
type client struct {
	http   *http.Client
	url    string
	key    inflight.Key
	census *census
}

// ask makes one request. One in five that are admitted is given up half-way. A refused client does not wait as long as
// it is told, but comes again soon: demo clients are rude.
func (c *client) ask(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tokens := 20 + rand.IntN(20)
	body := fmt.Appendf(nil, `{"model":%q,"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"Go on."}]}`,
		c.key.Model, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer sk-"+c.key.Org+"-123")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		c.census.note(c.key, func(r *row) { r.refused++ })
		_, err := io.Copy(io.Discard, resp.Body) // so that the connection can be used again
		select {
		case <-ctx.Done():
		case <-time.After(50*time.Millisecond + rand.N(200*time.Millisecond)):
		}
		return err
	default:
		return fmt.Errorf("%s %v: %s", c.url, c.key, resp.Status)
	}
	events, giveUp := 0, rand.IntN(5) == 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if bytes.HasPrefix(lines.Bytes(), []byte("data: ")) {
			events++
		}
		if giveUp && events > tokens/2 {
			c.census.note(c.key, func(r *row) { r.aborted++ })
			return nil
		}
	}
	if events <= tokens {
		return fmt.Errorf("%s %v: a stream of %d tokens ended after %d events", c.url, c.key, tokens, events)
	}
	return nil
}

// report prints the table and says what is wrong with it.
func (c *census) report(stdout io.Writer, registry *inflight.Registry, limits *inflight.LimitTable) error {
	var wrong []error
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "key\tadmitted\tof these given up\trefused\tlimit\tpeak in use\tin use at the end\t")
	add := func(name, limit string, r row, inUse int) {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%d\t%d\t\n", name, r.admitted, r.aborted, r.refused, limit, r.peak, inUse)
		if inUse != 0 || r.now != 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d slots and %d requests are left", name, inUse, r.now))
		}
	}
	for _, key := range demoKeys() {
		limit, r := limits.Limits(key).Key, c.row(key)
		add(key.String(), limitText(limit), r, registry.InUse(key))
		if r.peak > limit {
			wrong = append(wrong, fmt.Errorf("%v: %d in use is above the limit of %d", key, r.peak, limit))
		}
	}
	stats, all := registry.Stats(), c.row(inflight.Key{})
	add("all", "", all, stats.InUse)
	if err := table.Flush(); err != nil {
		return err
	}
	if stats.Admitted != uint64(all.admitted) || stats.RejectedTotal() != uint64(all.refused) {
		wrong = append(wrong, fmt.Errorf("the registry counted %d admitted and %d refused", stats.Admitted, stats.RejectedTotal()))
	}
	if wrong == nil {
		_, _ = fmt.Fprintln(stdout, "\nNo key was ever above its limit, and nothing is left in use.")
	}
	return errors.Join(wrong...)
}

// row returns a copy, zero if nobody ever came.
func (c *census) row(k inflight.Key) row {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rows[k]; r != nil {
		return *r
	}
	return row{}
}
