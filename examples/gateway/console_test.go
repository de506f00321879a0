package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// One stream is found by the name that its client knows, and cancelled.
func TestConsole(t *testing.T) {
	p := start(t, "-tokens-per-second", "1")
	for range 3 {
		p.stream(t, chatPath, "1000")
	}
	stuck := p.stream(t, messagesPath, "1000")
	id := stuck.Header.Get(requestID)
	require.Regexp(t, `^req_[A-Z2-7]{12}$`, id)

	found := text(t, p.do(t, http.MethodGet, consolePath+"?q="+id, ""))
	require.Contains(t, found, "HOLDERS, the oldest first: 1 of 4 match")
	slot := regexp.MustCompile(`(\d+) +1 +- +acme/glm +` + id + ` /v1/messages`).FindStringSubmatch(found)
	require.NotNil(t, slot, found)
	require.Equal(t, http.StatusNoContent, p.do(t, http.MethodPost, consolePath+"api/slots/"+slot[1]+"/cancel", "").StatusCode)
	_, err := io.ReadAll(stuck.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, p.logged("console: cancel slot", "outcome=done", "slot="+slot[1], "label=\""+id))
}

// The table of limits is that of the gateway.
func TestConsoleSetsLimits(t *testing.T) {
	p := start(t, "-tokens-per-second", "1")
	p.stream(t, chatPath, "1000")
	require.Equal(t, http.StatusNoContent, p.do(t, http.MethodPut, consolePath+"api/limits?org=acme", `{"key":1}`).StatusCode)
	require.Equal(t, http.StatusTooManyRequests, p.do(t, http.MethodPost, chatPath, ask(`"max_tokens":1`)).StatusCode)
}

// A client's own name for its request is kept, and passed on, if it is not too long.
func TestRequestID(t *testing.T) {
	seen := make(chan [2]string, 1)
	s := open(t, inflight.Limits{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- [2]string{inflight.FromContext(r.Context()).Label(), r.Header.Get(requestID)}
	}))
	resp := s.do(t, http.MethodPost, chatPath, ask(`"n":1`), requestID, "mine")
	require.Equal(t, "mine", resp.Header.Get(requestID))
	require.Equal(t, [2]string{"mine " + chatPath, "mine"}, <-seen)

	resp = s.do(t, http.MethodPost, chatPath, ask(`"n":1`), requestID, strings.Repeat("x", 129))
	require.Regexp(t, `^req_`, resp.Header.Get(requestID))
	require.Equal(t, resp.Header.Get(requestID), (<-seen)[1])
}

// A name may be that of somebody who has it point here.
func TestConsoleIsReachedByAddress(t *testing.T) {
	h := byAddress(http.NotFoundHandler())
	for host, status := range map[string]int{
		"127.0.0.1:8080": 404, "10.1.2.3": 404, "[::1]:8080": 404, "[::1]": 404, "localhost:8080": 404, "localhost": 404,
		"evil.example": 421, "evil.example:8080": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, status, w.Code, host)
	}
}
