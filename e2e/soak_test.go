package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"flag"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

var (
	soakFor  = flag.Duration("soak", 3*time.Second, "how long TestSoak goes on")
	soakSeed = flag.Uint64("soak.seed", uint64(time.Now().UnixNano()), "what the clients of TestSoak do")
)

const (
	soakClients = 64

	// A change of limits is in force when the gateway has read the file again, which it does each second. For so long
	// the limits before the change may still be those that admit.
	soakGrace = 5 * time.Second
)

// TestSoak lets clients of all manners at the program for as long as it is told. What the program says of itself is
// compared with what the model server behind it counts. At the end nothing may be left, be it slots, goroutines or memory.
func TestSoak(t *testing.T) {
	for _, back := range []wire{plain, tls2} {
		t.Run("upstream "+string(back), func(t *testing.T) {
			t.Logf("to run it again: go test -run TestSoak -soak %v -soak.seed %d", *soakFor, *soakSeed)
			newSoak(t, back).run(t, *soakFor/2)
		})
	}
}

// A soak is a gateway with a model server that counts.
type soak struct {
	gateway *gateway
	model   *countingModel
	server  interface{ CloseClientConnections() }
	limits  string // the file
	client  *http.Client

	mu   sync.Mutex
	seen map[string]int // what clients did and got, how often
}

func newSoak(t *testing.T, back wire) *soak {
	t.Helper()
	s := &soak{model: newCountingModel(), limits: filepath.Join(t.TempDir(), "limits.json"), seen: make(map[string]int)}
	server := serve(t, back, s.model)
	s.server = server
	if cert := server.Certificate(); cert != nil {
		if runtime.GOOS != "linux" {
			t.Skip("the gateway can be told to trust a certificate by SSL_CERT_FILE on Linux only")
		}
		trusted := filepath.Join(t.TempDir(), "cert.pem")
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
		require.NoError(t, os.WriteFile(trusted, text, 0o600))
		t.Setenv("SSL_CERT_FILE", trusted)
	}
	s.change(t, rand.New(rand.NewPCG(*soakSeed, 0)))
	s.gateway = startGateway(t, "{}", "-limits", s.limits, "-upstream", server.URL, "-wait", "20ms")
	transport := &http.Transport{MaxIdleConnsPerHost: soakClients, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	return s
}

// run goes through two storms. What the program needs after the first one, a short one, is what it may need after the second.
func (s *soak) run(t *testing.T, d time.Duration) {
	t.Helper()
	s.storm(t, d/10, 1)
	before := s.calm(t)
	s.storm(t, d-d/10, 2)
	after := s.calm(t)
	t.Logf("%v; at most %d in flight; goroutines %.0f, then %.0f; heap goal %.1f MB, then %.1f MB",
		s.seen, s.model.peak, before["go_goroutines"], after["go_goroutines"],
		before["go_memstats_next_gc_bytes"]/1e6, after["go_memstats_next_gc_bytes"]/1e6)
	require.LessOrEqual(t, after["go_goroutines"], before["go_goroutines"]+5)
	require.LessOrEqual(t, after["go_memstats_next_gc_bytes"], 1.5*before["go_memstats_next_gc_bytes"]+4e6)
}

// storm lets the clients loose for a while. Meanwhile limits change, the program is asked how it is, and its operator is at
// work.
func (s *soak) storm(t *testing.T, d time.Duration, number uint64) {
	t.Helper()
	end := time.Now().Add(d)
	var clients sync.WaitGroup
	for i := range uint64(soakClients) {
		clients.Go(func() {
			c := soakClient{s, rand.New(rand.NewPCG(*soakSeed+number, i+1))}
			for time.Now().Before(end) && !s.model.failed() {
				c.act()
			}
		})
	}
	rng := rand.New(rand.NewPCG(*soakSeed+number, 0))
	for n := 1; time.Now().Before(end) && !s.model.failed(); n++ {
		time.Sleep(100 * time.Millisecond)
		s.operate(t, rng)
		if n%10 == 0 {
			s.metrics(t)
		}
		if n%80 == 0 {
			s.change(t, rng)
		}
	}
	clients.Wait()
	require.Empty(t, s.model.faults)
}

// change writes other limits.
func (s *soak) change(t *testing.T, rng *rand.Rand) {
	t.Helper()
	limits := inflight.NewLimitTable(inflight.Limits{Key: 4 + rng.IntN(9), Total: 20 + rng.IntN(30)})
	require.NoError(t, limits.Set(inflight.Key{Org: "acme"}, inflight.Limits{Org: 6 + rng.IntN(12)}))
	require.NoError(t, limits.Set(inflight.Key{Model: "llama"}, inflight.Limits{Model: 8 + rng.IntN(12)}))
	if rng.IntN(3) == 0 {
		require.NoError(t, limits.Set(inflight.Key{Org: "umbra", Model: "glm"}, inflight.Limits{Key: inflight.Blocked}))
	}
	text, err := json.Marshal(limits)
	require.NoError(t, err)
	s.model.limit(limits)
	require.NoError(t, os.WriteFile(s.limits, text, 0o600))
}

// calm waits until nothing is in flight, checks that the program says so too, and returns what it says once two
// collections have made the heap as small as it gets.
func (s *soak) calm(t *testing.T) map[string]float64 {
	t.Helper()
	s.client.CloseIdleConnections()
	require.Eventually(t, s.model.idle, soon, tick, "requests at the model server")
	s.server.CloseClientConnections() // those that the gateway keeps
	m := s.until(t, "nothing is in flight", func(m map[string]float64) bool {
		return m["inflight_slots"] == 0 && m["inflight_keys"] == 0 && m["inflight_waiters"] == 0
	})
	require.Positive(t, m["inflight_admitted_total"])
	require.Equal(t, m["inflight_admitted_total"], m["inflight_released_total"]+m["inflight_evicted_total"])
	require.Zero(t, m["inflight_lost_total"])

	collections := m["go_gc_duration_seconds_count"]
	return s.until(t, "two collections are done", func(m map[string]float64) bool {
		return m["go_gc_duration_seconds_count"] >= collections+2
	})
}

// until asks the program for its metrics until they are as they should be.
func (s *soak) until(t *testing.T, what string, done func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	for end := time.Now().Add(4 * soon); ; time.Sleep(tick) {
		m := s.metrics(t)
		if done(m) {
			return m
		}
		if time.Now().After(end) {
			maps.DeleteFunc(m, func(name string, _ float64) bool { return strings.HasSuffix(name, "_bucket") })
			require.FailNow(t, "waited in vain until "+what, "%v", m)
		}
	}
}

// metrics asks the program for its metrics, and sums up those that differ only by their labels.
func (s *soak) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	sums := make(map[string]float64)
	for line := range strings.Lines(s.look(t, "/metrics")) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		name, _, _ := strings.Cut(series, "{")
		n, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		sums[name] += n
	}
	return sums
}

// look returns what the program shows its operator.
func (s *soak) look(t *testing.T, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.gateway.url+path, http.NoBody)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return text(t, resp)
}

func (s *soak) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[what]++
}
