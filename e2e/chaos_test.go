package e2e_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
)

const (
	chaosOrgs    = 4
	chaosLimit   = 8 // of each org, at each place
	chaosWorkers = 64
)

// What the server at the end does, by path. Each reads the request's body first, as only then net/http notices a client
// that goes away, but for /early.
var chaosModes = []string{"/stream", "/stall", "/late", "/early", "/cut", "/empty", "/big", "/trailer"}

// chaosAnswers are the whole bodies of the answers with status 200. Nothing shorter may look complete.
var chaosAnswers = map[string]string{
	"/stream": strings.Repeat("data: token\n\n", 10), "/stall": "data: token\n\n", "/late": "late",
	"/big": strings.Repeat("x", 300_000), "/trailer": "body",
}

func chaosKey(r *http.Request) (inflight.Key, error) {
	return inflight.Key{Org: r.Header.Get("X-Org"), Model: "glm"}, nil
}

// A storm is a run of requests against middleware, reverse proxy, transport, middleware, server, with an operator who
// cancels and evicts at random meanwhile.
type storm struct {
	seed                   uint64
	front, between, behind *inflight.Registry
	live                   [chaosOrgs]atomic.Int64 // inside the last handler

	mu     sync.Mutex
	seen   map[string]int // what happened how often
	faults []string
}

func (s *storm) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[what]++
}

func (s *storm) fault(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) < 10 {
		s.faults = append(s.faults, what)
	}
}

func TestChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	n := 2000
	if testing.Short() {
		n = 200
	}
	for i, wires := range [][2]wire{{plain, plain}, {plain, tls2}, {tls2, plain}, {tls2, tls2}} {
		t.Run(string(wires[0])+" then "+string(wires[1]), func(t *testing.T) {
			t.Logf("to run it again: CHAOS_SEED=%d go test -race -run TestChaos", seed)
			runStorm(t, wires[0], wires[1], n/4, seed+uint64(i))
		})
	}
}

func runStorm(t *testing.T, front, back wire, n int, seed uint64) {
	t.Helper()
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) }) // the first to be registered, the last to run

	limits := inflight.Limits{Key: chaosLimit}
	s := &storm{
		seed: seed, seen: make(map[string]int),
		front: newRegistry(t, limits), between: newRegistry(t, limits), behind: newRegistry(t, limits),
	}
	end := inflight.Middleware(s.behind, inflight.MiddlewareConfig{Key: chaosKey})(http.HandlerFunc(s.serve))
	upstream := serve(t, back, end)
	over := inflight.NewTransport(upstream.Client().Transport, s.between, inflight.TransportConfig{Key: chaosKey})
	mw := inflight.Middleware(s.front, inflight.MiddlewareConfig{Key: chaosKey, Wait: 5 * time.Millisecond})
	gateway := serve(t, front, mw(reverseProxy(t, upstream.URL, over)))

	send := newRawClient(gateway, s).send
	if front == tls2 {
		send = newStreamClient(t, gateway, s).send
	}
	s.blow(n, send)

	require.Empty(t, s.faults)
	for _, reg := range []*inflight.Registry{s.front, s.between, s.behind} {
		require.Eventually(t, func() bool {
			stats := reg.Stats()
			return stats.InUse == 0 && stats.Keys == 0 && stats.Waiters == 0
		}, soon, tick)
		require.Positive(t, reg.Stats().Admitted)
	}
	t.Log(s.seen)
	if !testing.Short() {
		for _, what := range append(points, "200", "429", "502", "failed") {
			require.Positive(t, s.seen[what], what)
		}
	}
	s.calm(t, gateway.URL, gateway.Client())
}

// blow sends n requests, each according to a random plan of its own, so that a seed stands for all plans.
func (s *storm) blow(n int, send func(*plan)) {
	var workers sync.WaitGroup
	var next atomic.Int64
	for range chaosWorkers {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				rng := rand.New(rand.NewPCG(s.seed, uint64(i)))
				if i%8 == 0 {
					s.operate(rng)
				}
				p := newPlan(rng)
				s.note(p.point)
				send(p)
			}
		})
	}
	workers.Wait()
}

// operate ends a slot at random. It evicts none of the last registry: an evicted slot is free while its handler is
// still on its way out, and how many handlers there are is what is checked.
func (s *storm) operate(rng *rand.Rand) {
	reg := []*inflight.Registry{s.front, s.between, s.behind}[rng.IntN(3)]
	slots := reg.Slots(0)
	if len(slots) == 0 {
		return
	}
	id := slots[rng.IntN(len(slots))].ID
	if reg == s.behind || rng.IntN(2) == 0 {
		reg.Cancel(id, nil)
	} else {
		reg.Evict(id)
	}
}

// calm checks that after the storm all works as before, for as many as there are slots.
func (s *storm) calm(t *testing.T, url string, client *http.Client) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range chaosOrgs * chaosLimit {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/stall", strings.NewReader("body"))
			req.Header.Set("X-Org", strconv.Itoa(i%chaosOrgs))
			resp, err := client.Do(req)
			if err != nil {
				s.fault("after the storm: " + err.Error())
				return
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK || err != nil || string(body) != chaosAnswers["/stall"] {
				s.fault("after the storm: " + resp.Status + " " + string(body))
			}
		})
	}
	wg.Wait()
	require.Empty(t, s.faults)
}

// serve is the server at the end.
func (s *storm) serve(w http.ResponseWriter, r *http.Request) {
	org, _ := strconv.Atoi(r.Header.Get("X-Org"))
	if live := s.live[org].Add(1); live > chaosLimit {
		s.fault("above the limit: " + strconv.FormatInt(live, 10))
	}
	defer s.live[org].Add(-1)
	defer s.note("served")

	flush := http.NewResponseController(w).Flush
	mode := r.URL.Path
	if mode == "/early" {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	switch mode {
	case "/stream":
		for range 10 {
			_, _ = io.WriteString(w, "data: token\n\n")
			_ = flush()
			pause(r, time.Millisecond)
		}
	case "/stall":
		_, _ = io.WriteString(w, chaosAnswers[mode])
		_ = flush()
		pause(r, 50*time.Millisecond)
	case "/late":
		pause(r, 30*time.Millisecond)
		_, _ = io.WriteString(w, chaosAnswers[mode])
	case "/cut":
		_, _ = io.WriteString(w, "data: token\n\n")
		_ = flush()
		panic(http.ErrAbortHandler)
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
	case "/big":
		_, _ = io.WriteString(w, chaosAnswers[mode])
	case "/trailer":
		_, _ = io.WriteString(w, chaosAnswers[mode])
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	}
}

// pause waits, and aborts the request if nobody wants it any more.
func pause(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// judge notes what came of a request, and checks that what looks complete is complete.
func (s *storm) judge(p *plan, status int, body []byte, err error) {
	switch {
	case err != nil:
		s.note("failed")
		return
	case status != http.StatusOK:
	case string(body) != chaosAnswers[p.mode]:
		s.fault(p.mode + " looks complete with " + strconv.Itoa(len(body)) + " bytes")
	}
	s.note(strconv.Itoa(status))
}

// points are the points where a client may leave a request.
var points = []string{
	"never", "before headers", "in headers", "in body", "after body", "after head", "in response", "half-close",
	"half-close in body",
}

// A plan is what a client does in one request.
type plan struct {
	mode, org, body string
	point           string
	reset           bool // leave by RST
	patience        time.Duration
	read            int // how much to read of the response
}

func newPlan(rng *rand.Rand) *plan {
	p := &plan{
		mode: chaosModes[rng.IntN(len(chaosModes))], org: strconv.Itoa(rng.IntN(chaosOrgs)),
		body:  strings.Repeat("b", []int{0, 10, 100_000}[rng.IntN(3)]),
		point: points[max(0, rng.IntN(len(points)+2)-2)], // every fourth stays
		reset: rng.IntN(2) == 0,
		read:  1 + rng.IntN(40),
	}
	if rng.IntN(2) == 0 {
		p.patience = time.Duration(rng.IntN(20)) * time.Millisecond
	}
	return p
}

// wait is the time that a client hesitates before it leaves.
func (p *plan) wait() {
	if p.patience > 0 {
		time.Sleep(p.patience)
	}
}
