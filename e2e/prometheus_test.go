package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A prometheus is a real Prometheus, running.
type prometheus struct{ url string }

// A sample is one element of the answer to an instant query.
type sample struct {
	Metric map[string]string
	Value  [2]any // time, value as text
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// startPrometheus starts one that scrapes a server five times a second, until the test ends.
func startPrometheus(t *testing.T, target string, flags ...string) *prometheus {
	t.Helper()
	path := installed(t, "prometheus", "prometheus")
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 200ms, evaluation_interval: 200ms}
scrape_configs: [{job_name: gateway, static_configs: [{targets: ['%s']}]}]
rule_files: ['%s']
`, strings.TrimPrefix(target, "http://"), rulesFile(t)), 0o600))

	process := exec.Command(path, append([]string{
		"--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:0",
	}, flags...)...)
	stderr, err := process.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	logged := make(chan struct{})
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-logged
		_ = process.Wait()
	})

	address := make(chan string, 1)
	go func() {
		defer close(logged)
		defer close(address)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				address <- "http://" + m[1]
				_, _ = io.Copy(io.Discard, stderr)
				return
			}
		}
	}()
	p := &prometheus{}
	select {
	case p.url = <-address:
	case <-time.After(soon):
	}
	require.NotEmpty(t, p.url, "it has not said where it listens")
	return p
}

// ask sends an instant query. While Prometheus is not ready there is no result.
func (p *prometheus) ask(t *testing.T, query string) []sample {
	t.Helper()
	resp := get(t, http.DefaultClient, p.url+"/api/v1/query?query="+url.QueryEscape(query))
	if resp.StatusCode == http.StatusServiceUnavailable {
		return nil
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	body := text(t, resp)
	require.NoError(t, json.Unmarshal([]byte(body), &answer), body)
	require.Equal(t, "success", answer.Status, "%s\n%s", answer.Error, query)
	return answer.Data.Result
}

// until asks until the result will do.
func (p *prometheus) until(t *testing.T, query string, will func([]sample) bool) {
	t.Helper()
	give := time.Now().Add(soon)
	for {
		got := p.ask(t, query)
		if will(got) {
			return
		}
		require.Less(t, time.Now(), give, "%s\n%v", query, got)
		time.Sleep(50 * time.Millisecond) // a quarter of the time between scrapes
	}
}

// shows waits until a query gives this one value.
func (p *prometheus) shows(t *testing.T, value, query string) {
	t.Helper()
	p.until(t, query, func(got []sample) bool { return len(got) == 1 && got[0].Value[1] == value })
}

// What Prometheus scrapes from the gateway is what clients have open.
func TestPrometheusSeesTheStreams(t *testing.T) {
	g := startGateway(t, `{"defaults": {"key": 20}}`, "-tokens-per-second", "1")
	p := startPrometheus(t, g.url, "--enable-feature=native-histograms")
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)

	p.shows(t, "0", `inflight_slots{job="gateway", registry="gateway"}`)
	var streams []*http.Response
	for range 20 {
		resp := endless(t, client, g.url)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		streams = append(streams, resp)
	}
	require.Equal(t, http.StatusTooManyRequests, endless(t, client, g.url).StatusCode)
	p.shows(t, "20", `inflight_slots`)
	p.shows(t, "1", `inflight_keys_at_limit`)
	p.shows(t, "1", `inflight_rejected_total{scope="key", reason="full"}`)
	for _, resp := range streams[:13] {
		require.NoError(t, resp.Body.Close())
	}
	p.shows(t, "7", `inflight_slots`)
	p.shows(t, "20", `inflight_slots_weight_recent_peak`)
	p.shows(t, "13", `histogram_count(inflight_hold_seconds)`)
	for _, resp := range streams[13:] {
		require.NoError(t, resp.Body.Close())
	}
	p.shows(t, "0", `inflight_slots`)

	check := exec.Command(installed(t, "promtool", "prometheus"), "check", "metrics")
	check.Stdin = get(t, client, g.url+"/metrics").Body
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
}

// endless begins a stream that goes on for very long.
func endless(t *testing.T, c *http.Client, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions",
		strings.NewReader(`{"model":"glm","stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"Hello"}]}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-acme-123")
	resp, err := c.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
