package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/slottest"
)

func TestMain(m *testing.M) {
	// When its server is away the client sleeps, and only then sees that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

const (
	soon = 10 * time.Second     // for what happens at once, on a slow machine
	tick = 5 * time.Millisecond // between looks
)

// A site is a gateway that answers on loopback.
type site struct {
	*gateway
	url    string
	client *http.Client
}

// open starts a gateway with these limits in front of this upstream.
func open(t *testing.T, limits inflight.Limits, upstream http.Handler) site {
	t.Helper()
	return openFor(t, limits, upstream, patience)
}

func openFor(t *testing.T, limits inflight.Limits, upstream http.Handler, patience time.Duration) site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	registry, err := newRegistry(inflight.Fixed(limits), log)
	require.NoError(t, err)
	return serving(t, newGateway(registry, nil, upstream, 0, patience, log))
}

func serving(t *testing.T, g *gateway) site {
	t.Helper()
	slottest.Empty(t, g.registry)
	server := httptest.NewUnstartedServer(nil)
	server.Config = g.server
	server.Start()
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, g.close(t.Context()))
	})
	return site{g, server.URL, server.Client()}
}

// do sends a request with acme's API key.
func (s site) do(t *testing.T, method, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-acme-123")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// stream begins a stream of tokens and returns when its first event has arrived.
func (s site) stream(t *testing.T, path string, tokens string) *http.Response {
	t.Helper()
	resp := s.do(t, http.MethodPost, path, ask(`"stream":true,"max_tokens":`+tokens))
	require.Equal(t, http.StatusOK, resp.StatusCode)
	first := make([]byte, 1)
	_, err := io.ReadFull(resp.Body, first)
	require.NoError(t, err)
	return resp
}

// use waits until so many slots of acme's glm are in use.
func (s site) use(t *testing.T, n int) {
	t.Helper()
	slottest.WaitInUse(t, s.registry, acme, n)
}

var acme = inflight.Key{Org: "acme", Model: "glm"}

// ask is the body of a request to glm with these fields besides.
func ask(fields string) string {
	return `{"model":"glm","messages":[{"role":"user","content":"Hello"}],` + fields + `}`
}

// text reads all of a response.
func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// A program is the whole command, running.
type program struct {
	site // without gateway
	stop context.CancelFunc
	exit chan int
	out  string
	log  *syncBuffer
}

// logged says whether a line of the log holds all these parts.
func (p *program) logged(parts ...string) bool {
	return slices.ContainsFunc(strings.Split(p.log.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

var listening = regexp.MustCompile(`(?m)^inflight gateway on (http://\S+)$`)

// start runs the command and returns when it says where it listens.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &program{stop: stop, exit: make(chan int, 1), log: &syncBuffer{}}
	out, stdout := io.Pipe()
	go func() {
		p.exit <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), stdout, p.log)
		_ = stdout.Close()
	}()
	for lines := bufio.NewReader(out); !strings.Contains(p.out, "/v1/models"); {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, p.log)
		p.out += line
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	p.client = &http.Client{Transport: &http.Transport{}}
	p.url = listening.FindStringSubmatch(p.out)[1]
	t.Cleanup(func() {
		stop()
		p.client.CloseIdleConnections()
	})
	return p
}

func TestProgramPrintsLinesThatWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	p := start(t, "-tokens-per-second", "1000")
	_, lines, _ := strings.Cut(p.out, "Try:")
	var answers []string
	for line := range strings.Lines(lines) {
		if strings.TrimSpace(line) != "" {
			out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "curl", "curl -sSf", 1)).CombinedOutput()
			require.NoError(t, err, string(out))
			answers = append(answers, string(out))
		}
	}
	require.Len(t, answers, 3)
	require.Contains(t, answers[0], "data: [DONE]")
	require.Contains(t, answers[1], `"type":"message"`)
	require.Contains(t, answers[2], `"id":"glm"`)
	p.stop()
	require.Equal(t, 0, <-p.exit)
}

func TestDrainLetsStreamsFinish(t *testing.T) {
	p := start(t, "-tokens-per-second", "20")
	resp := p.stream(t, chatPath, "40") // two seconds
	p.stop()
	refused := p.do(t, http.MethodPost, chatPath, ask(`"max_tokens":1`))
	for refused.StatusCode == http.StatusOK { // until the signal has arrived
		refused = p.do(t, http.MethodPost, chatPath, ask(`"max_tokens":1`))
	}
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.Equal(t, "1", refused.Header.Get("Retry-After"))
	require.True(t, strings.HasSuffix(text(t, resp), "data: [DONE]\n\n"))
	require.Equal(t, 0, <-p.exit)
	require.Contains(t, p.log.String(), "0 slots left")
}

func TestDrainSaysWhatIsLeft(t *testing.T) {
	p := start(t, "-tokens-per-second", "1", "-drain", "20ms")
	resp := p.stream(t, chatPath, "1000")
	p.stop()
	require.Equal(t, 1, <-p.exit)
	require.Contains(t, p.log.String(), "1 slot left")
	_, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a cut stream does not look complete")
}

// What is not limited, and the last bytes of what is, may finish too.
func TestDrainWaitsForTheServer(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "models")
	}))
	defer slow.Close()
	p := start(t, "-upstream", slow.URL)
	answer := make(chan string, 1)
	go func() {
		defer close(answer)
		resp, err := p.client.Get(p.url + "/v1/models")
		if err != nil {
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answer <- string(body)
	}()
	<-begun
	p.stop()
	require.Eventually(t, func() bool { return p.logged("0 slots left") }, soon, tick)
	close(finish)
	require.Equal(t, "models", <-answer)
	require.Equal(t, 0, <-p.exit)
}

func TestProxy(t *testing.T) {
	behind := open(t, inflight.Limits{}, newModelServer(1))
	p := start(t, "-upstream", behind.url)
	require.Contains(t, p.out, behind.url)
	require.Contains(t, text(t, p.do(t, http.MethodGet, "/v1/models", "")), `"id":"glm"`)

	for _, path := range []string{chatPath, messagesPath} {
		resp := p.stream(t, path, "1000") // the first event comes long before the last
		behind.use(t, 1)
		require.NoError(t, resp.Body.Close())
		behind.use(t, 0)
	}
	resp := p.do(t, http.MethodPost, chatPath, `{"model":"gpt"}`)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.Contains(t, text(t, resp), "model_not_found")
}

func TestProxyWithoutUpstream(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	p := start(t, "-upstream", gone.URL)
	resp := p.do(t, http.MethodPost, chatPath, ask(`"stream":true`))
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
	require.Contains(t, text(t, resp), `"type":"server_error"`)
	resp = p.do(t, http.MethodPost, messagesPath, ask(`"max_tokens":1`))
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
	require.Contains(t, text(t, resp), `"type":"api_error"`)
}

func TestBadCommandLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-h", 0, "-tokens-per-second"},
		{"-nonsense", 2, "-nonsense"},
		{"serve", 2, `unexpected argument "serve"`},
		{"-tokens-per-second 0", 2, "must be above 0"},
		{"-drain -1s", 2, "must not be negative"},
		{"-upstream localhost:1234", 2, "must look like"},
		{"-redis localhost:6379", 2, "must look like redis://"},
		{"-processes 2", 2, "need -redis"},
		{"-fallback maybe", 2, "must be share, open or closed"},
		{"-redis redis://127.0.0.1:1 -redis-prefix {}", 1, "braces"},
		{"-limits /does/not/exist", 1, "/does/not/exist"},
		{"-addr " + taken.Addr().String(), 1, "address already in use"},
	} {
		var out, log bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), strings.Fields(c.args), &out, &log), c.args)
		require.Contains(t, log.String(), c.says)
		require.Empty(t, out.String(), c.args)
	}
}

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	var out bytes.Buffer
	require.NoError(t, demo(t.Context(), load{clients: 180, lasting: time.Second}, &out, slog.New(slog.DiscardHandler)))
	// On a slow machine a peak may be below its limit; that none was above is what demo returns.
	require.Regexp(t, `acme/glm +[1-9]\d* +\d+ +\d+ +20 +[1-9]\d* +0\n`, out.String())
	require.Regexp(t, `globex/llama +[1-9]\d* +\d+ +[1-9]\d* +8 +[1-9] +0\n`, out.String())
}

// The report must not be kind: what the census saw decides.
func TestDemoReportSaysWhatIsWrong(t *testing.T) {
	registry, err := inflight.New(inflight.Config{SweepInterval: -1})
	require.NoError(t, err)
	limits := inflight.NewLimitTable(inflight.Limits{Key: 3})
	c := &census{rows: make(map[inflight.Key]*row)}
	require.NoError(t, c.report(io.Discard, registry, limits))

	c.note(acme, func(r *row) { r.admitted, r.peak = 4, 4 })
	slot, err := registry.TryAcquire(acme)
	require.NoError(t, err)
	err = c.report(io.Discard, registry, limits)
	require.ErrorContains(t, err, "acme/glm: 4 in use is above the limit of 3")
	require.ErrorContains(t, err, "acme/glm: 1 slots and 0 requests are left")
	require.ErrorContains(t, err, "the registry counted 1 admitted and 0 refused")
	slot.Release()
}

// decode reads JSON into maps and slices, for comparing whole.
func decode(t *testing.T, text string) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// A syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
