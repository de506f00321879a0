package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
)

// startRedis starts a real Redis, until the test ends, and returns its URL. A new one has no data, and learns for as long
// as a fleet says; this one has learned already, from a fleet that was in a hurry.
func startRedis(t *testing.T) string {
	t.Helper()
	program := installed(t, "redis-server", "redis-server")
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // the names of t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	server := exec.Command(program, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "")
	var log bytes.Buffer
	server.Stdout = &log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	require.Eventually(t, func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode()&os.ModeSocket != 0
	}, soon, tick, "it does not listen")
	url := "unix://" + socket
	f := newFleet(t, newRegistry(t, inflight.Limits{}), url, fleet.Config{TTL: time.Second})
	require.NoError(t, f.Close(bounded(t)))
	return url
}

// newFleet makes a fleet on a Redis, until the test ends.
func newFleet(t *testing.T, reg *inflight.Registry, url string, cfg fleet.Config) *fleet.Fleet {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	f, err := fleet.New(t.Context(), client, reg, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		require.NoError(t, f.Close(ctx))
		require.NoError(t, client.Close())
	})
	require.Eventually(t, func() bool { s := f.Stats(); return s.Processes > 0 && s.Learning == 0 }, soon, tick)
	return f
}

// A scale stands behind gateways and knows what they have in flight together.
type scale struct {
	mu        sync.Mutex
	now, peak int
}

func (s *scale) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.add(1)
	time.Sleep(5 * time.Millisecond) // the model's work
	s.add(-1)                        // before the gateway hears that it is over
	_, _ = io.WriteString(w, "{}")
}

func (s *scale) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.peak = max(s.peak, s.now)
}

// highest returns the peak since it was last asked for.
func (s *scale) highest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.peak = s.now }()
	return s.peak
}

// Two gateways, each under more load than a limit allows for, never have more in flight together. When one of them is gone
// the other one has it all.
func TestGatewaysShareLimits(t *testing.T) {
	const limit, clients, requests = 20, 50, 40
	url, both := startRedis(t), &scale{}
	upstream := serve(t, plain, both).URL
	limits := fmt.Sprintf(`{"defaults": {"key": %d}}`, limit)
	gateways := []*gateway{
		startGateway(t, limits, "-redis", url, "-upstream", upstream),
		startGateway(t, limits, "-redis", url, "-upstream", upstream),
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(g *gateway) int {
		body := strings.NewReader(`{"model": "glm", "messages": []}`)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/chat/completions", body)
		req.Header.Set("Authorization", "Bearer sk-acme-123")
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}

	var answers [2]struct{ admitted, refused, others atomic.Int64 }
	var load sync.WaitGroup
	for i := range clients {
		g := i % 2
		load.Go(func() {
			for range requests {
				switch ask(gateways[g]) {
				case http.StatusOK:
					answers[g].admitted.Add(1)
				case http.StatusTooManyRequests:
					answers[g].refused.Add(1)
				default:
					answers[g].others.Add(1)
				}
			}
		})
	}
	load.Wait()
	require.LessOrEqual(t, both.highest(), limit)
	for g := range answers {
		require.Positive(t, answers[g].admitted.Load(), g)
		require.Positive(t, answers[g].refused.Load(), g)
		require.Zero(t, answers[g].others.Load(), g)
	}

	gateways[0].stop(t)
	require.Eventually(t, func() bool {
		var burst sync.WaitGroup
		for range clients {
			burst.Go(func() { ask(gateways[1]) })
		}
		burst.Wait()
		return both.highest() == limit
	}, soon, tick)
}
