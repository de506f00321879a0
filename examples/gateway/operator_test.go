package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

var operating = regexp.MustCompile(`(?m)^operator: (http://[^/]+)/metrics`)

func TestMetrics(t *testing.T) {
	p := start(t, "-tokens-per-second", "1")
	require.Equal(t, p.url, operating.FindStringSubmatch(p.out)[1])
	p.stream(t, chatPath, "1000")
	resp := p.do(t, http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body := text(t, resp)
	require.Contains(t, body, "\n"+`inflight_slots{registry="gateway"} 1`+"\n")
	require.Contains(t, body, "\ngo_goroutines ")
	require.Contains(t, body, "\nprocess_open_fds ")
	require.Equal(t, http.StatusMethodNotAllowed, p.do(t, http.MethodPost, "/metrics", "").StatusCode)
}

// With an address of its own the operator is there, to the end of draining, and not at the clients' address.
func TestOperatorAddress(t *testing.T) {
	p := start(t, "-tokens-per-second", "20", "-operator-addr", "127.0.0.1:0")
	resp := p.stream(t, chatPath, "40") // two seconds
	require.Equal(t, http.StatusNotFound, p.do(t, http.MethodGet, "/metrics", "").StatusCode)
	p.url = operating.FindStringSubmatch(p.out)[1]
	require.Equal(t, http.StatusNotFound, p.do(t, http.MethodPost, chatPath, ask(`"max_tokens":1`)).StatusCode)

	p.stop()
	require.Eventually(t, func() bool { return p.logged("draining") }, soon, tick)
	require.Contains(t, text(t, p.do(t, http.MethodGet, "/metrics", "")), `inflight_slots{registry="gateway"} 1`)
	require.True(t, strings.HasSuffix(text(t, resp), "data: [DONE]\n\n"))
	require.Equal(t, 0, <-p.exit)
}

// What the world can reach must not have an operator unless it was asked for.
func TestOperatorIsNotForEverybody(t *testing.T) {
	for ip, base := range map[string]string{"0.0.0.0": "", "192.0.2.1": "", "::": "", "::1": "http://[::1]:80"} {
		s := open(t, inflight.Limits{}, newModelServer(1))
		o, err := newOperator(t.Context(), s.gateway, "", &net.TCPAddr{IP: net.ParseIP(ip), Port: 80})
		require.NoError(t, err)
		require.Equal(t, base, o.base)
		require.Equal(t, base != "", s.do(t, http.MethodGet, "/metrics", "").StatusCode == http.StatusOK, ip)
	}
}

func TestOperatorAddressIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	var log bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-addr", "127.0.0.1:0", "-operator-addr", taken.Addr().String()}, io.Discard, &log))
	require.Contains(t, log.String(), "cannot listen on -operator-addr")
	require.Contains(t, log.String(), "address already in use")
}
