package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var gatewayPath string // where buildGateway puts the program

// buildGateway builds ../examples/gateway once, with the race detector if the tests have it.
var buildGateway = sync.OnceValue(func() error {
	args := []string{"build", "-C", filepath.Join("..", "examples", "gateway"), "-o", gatewayPath}
	if raceDetector() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A gateway is the example program, running.
type gateway struct {
	url string

	process   *exec.Cmd
	signalled sync.Once
	log       bytes.Buffer // to be read once it has exited
	exited    chan struct{}
}

// startGateway starts the program with these limits, a JSON document, and flags: its own address, 100 tokens/s unless they
// say otherwise. When the test ends it must stop by SIGTERM with nothing left.
func startGateway(t *testing.T, limits string, flags ...string) *gateway {
	t.Helper()
	require.NoError(t, buildGateway())
	file := filepath.Join(t.TempDir(), "limits.json")
	require.NoError(t, os.WriteFile(file, []byte(limits), 0o600))
	g := &gateway{exited: make(chan struct{})}
	args := append([]string{"-addr", "127.0.0.1:0", "-tokens-per-second", "100", "-limits", file}, flags...)
	g.process = exec.Command(gatewayPath, args...)
	g.process.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // a program under the race detector lingers otherwise
	g.process.Stderr = &g.log
	stdout, err := g.process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, g.process.Start())

	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		_ = g.process.Wait()
		close(g.exited)
	}()
	t.Cleanup(func() { g.stop(t) })
	require.NoError(t, err)
	address := regexp.MustCompile(`http://\S+`).FindString(first)
	require.NotEmpty(t, address, first)
	g.url = address
	return g
}

// stop ends the program by SIGTERM, and checks that every slot had been given back by then or soon after.
func (g *gateway) stop(t *testing.T) {
	t.Helper()
	g.signal()
	select {
	case <-g.exited:
	case <-time.After(soon):
		_ = g.process.Process.Kill()
		<-g.exited
	}
	require.Equal(t, 0, g.process.ProcessState.ExitCode(), g.log.String())
	require.Contains(t, g.log.String(), "drained: 0 slots left")
}

// signal tells the program to drain, the first time: a second signal would end it at once.
func (g *gateway) signal() {
	g.signalled.Do(func() { _ = g.process.Process.Signal(syscall.SIGTERM) })
}

// An attempt is what the server side saw of a request and its answer.
type attempt struct {
	began, answered time.Time // when the request, and the head of its answer, were here
	status          int
	retryAfter      string
}

// A witness stands before a gateway and notes the attempts.
type witness struct {
	url string

	mu   sync.Mutex
	seen []attempt
}

func startWitness(t *testing.T, g *gateway) *witness {
	t.Helper()
	w := &witness{}
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	w.url = serve(t, plain, reverseProxy(t, g.url, roundTripper(func(r *http.Request) (*http.Response, error) {
		a := attempt{began: time.Now()}
		resp, err := base.RoundTrip(r)
		if err == nil {
			a.answered, a.status, a.retryAfter = time.Now(), resp.StatusCode, resp.Header.Get("Retry-After")
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, a)
		}
		return resp, err
	}))).URL
	return w
}

func (w *witness) attempts() []attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
