package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestSlotIsHeldToTheLastEvent(t *testing.T) {
	for _, path := range []string{chatPath, messagesPath} {
		s := open(t, inflight.Limits{}, newModelServer(20))
		resp := s.stream(t, path, "5")
		require.Equal(t, 1, s.registry.InUse(acme))
		text(t, resp)
		s.use(t, 0)
	}
}

func TestAbortedStreamFreesItsSlot(t *testing.T) {
	s := open(t, inflight.Limits{Key: 1}, newModelServer(1))
	for _, path := range []string{chatPath, messagesPath} {
		resp := s.stream(t, path, "1000")
		require.Equal(t, 1, s.registry.InUse(acme))
		require.NoError(t, resp.Body.Close())
		s.use(t, 0)
	}
}

// Cancelling a slot ends the stream, and not so that it looks complete.
func TestCancelledSlotCutsItsStream(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1))
	resp := s.stream(t, chatPath, "1000")
	require.True(t, s.registry.Cancel(s.registry.Slots(1)[0].ID, nil))
	_, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	s.use(t, 0)
}

func TestRefusal(t *testing.T) {
	s := open(t, inflight.Limits{Key: 1}, newModelServer(20))
	s.stream(t, chatPath, "1000")

	resp := s.do(t, http.MethodPost, chatPath, ask(`"stream":true`))
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.Contains(t, text(t, resp), `"code":"rate_limit_exceeded"`)

	resp = s.do(t, http.MethodPost, messagesPath, ask(`"stream":true`))
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.Contains(t, text(t, resp), `"type":"rate_limit_error"`)

	require.Equal(t, 1, s.registry.InUse(acme))
	require.Equal(t, http.StatusOK, s.do(t, http.MethodPost, chatPath, ask(`"max_tokens":1`),
		"Authorization", "Bearer sk-globex-123").StatusCode, "another organisation has its own slots")
	require.Equal(t, http.StatusOK, s.do(t, http.MethodPost, chatPath, `{"model":"llama","max_tokens":1,"messages":[1]}`).StatusCode,
		"and so has another model")
}

func TestUnlimitedRoutesWorkWhenFull(t *testing.T) {
	s := open(t, inflight.Limits{Total: inflight.Blocked}, newModelServer(1))
	require.Equal(t, http.StatusServiceUnavailable, s.do(t, http.MethodPost, chatPath, ask(`"stream":true`)).StatusCode)
	for _, path := range []string{"/healthz", "/v1/models"} {
		require.Equal(t, http.StatusOK, s.do(t, http.MethodGet, path, "").StatusCode)
	}
}

func TestErrors(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1000))
	big := fmt.Sprintf(`{"model":"glm","pad":"%s"}`, strings.Repeat("x", maxBody))
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
		header                   []string
	}{
		{"no key", "POST", chatPath, ask(`"n":1`), 401, `"code":"invalid_api_key"`, []string{"Authorization", ""}},
		{"odd key", "POST", chatPath, ask(`"n":1`), 401, `"code":"invalid_api_key"`, []string{"Authorization", "Bearer sk-acme"}},
		{"no key", "POST", messagesPath, ask(`"n":1`), 401, `"type":"authentication_error"`, []string{"Authorization", ""}},
		{"no key and no body", "POST", chatPath, "", 401, `"code":"invalid_api_key"`, []string{"Authorization", ""}},
		{"no model", "POST", chatPath, `{"messages":[1]}`, 400, "a field model", nil},
		{"empty model", "POST", messagesPath, `{"model":""}`, 400, "a field model", nil},
		{"long model", "POST", chatPath, `{"model":"` + strings.Repeat("x", 257) + `"}`, 400, `"type":"invalid_request_error"`, nil},
		{"not JSON", "POST", chatPath, "Hello", 400, `"type":"invalid_request_error"`, nil},
		{"broken after the model", "POST", chatPath, `{"model":"glm","messages":[}`, 400, "not valid JSON", nil},
		{"more after the body", "POST", messagesPath, ask(`"max_tokens":1`) + "}", 400, "not valid JSON", nil},
		{"odd shape", "POST", chatPath, `{"model":"glm","messages":"Hello"}`, 400, "messages", nil},
		{"no messages", "POST", chatPath, `{"model":"glm"}`, 400, "messages", nil},
		{"no max_tokens", "POST", messagesPath, ask(`"stream":true`), 400, "max_tokens", nil},
		{"negative max_tokens", "POST", chatPath, ask(`"max_tokens":-1`), 400, "max_tokens", nil},
		{"unknown model", "POST", chatPath, `{"model":"gpt"}`, 404, `"code":"model_not_found"`, nil},
		{"unknown model", "POST", messagesPath, `{"model":"gpt"}`, 404, `"type":"not_found_error"`, nil},
		{"large, model first", "POST", chatPath, big, 413, `"message"`, nil},
		{"large, model last", "POST", messagesPath, `{` + big[len(`{"model":"glm",`):], 413, `"message"`, nil},
		{"wrong method", "GET", chatPath, "", 405, `"code":"method_not_allowed"`, nil},
		{"wrong method", "DELETE", messagesPath, "", 405, `"type":"invalid_request_error"`, nil},
		{"wrong method", "POST", "/healthz", "", 405, `"code":"method_not_allowed"`, nil},
		{"no such path", "GET", "/v2", "", 404, `"code":"unknown_url"`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := s.do(t, c.method, c.path, c.body, c.header...)
			require.Equal(t, c.status, resp.StatusCode)
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			body := text(t, resp)
			require.Contains(t, body, c.says)
			require.Contains(t, decode(t, body), "error")
			require.Equal(t, resp.StatusCode == http.StatusMethodNotAllowed, resp.Header.Get("Allow") != "")
		})
	}
	s.use(t, 0)
}

// The upstream sees the model that was counted, however often and in whatever spelling the body names one.
func TestModelCannotBeSmuggledPastItsLimit(t *testing.T) {
	seen := make(chan string, 1)
	s := open(t, inflight.Limits{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- inflight.FromContext(r.Context()).Key().String() + string(body)
	}))
	s.do(t, http.MethodPost, chatPath, `{"n": 12345678901234567890, "model": "glm", "model": "llama", "Model": "llama"}`)
	require.Equal(t, `acme/glm{"model":"glm","n":12345678901234567890}`, <-seen)
}

func TestAPIKey(t *testing.T) {
	for _, c := range []struct{ header, value, org string }{
		{"Authorization", "Bearer sk-acme-123", "acme"},
		{"Authorization", "bearer sk-acme-123", "acme"},
		{"X-Api-Key", "sk-acme-123", "acme"},
		{"X-Api-Key", "sk-big-corp-123", "big-corp"},
		{"X-Api-Key", "sk-acme-", ""},
		{"X-Api-Key", "sk--123", ""},
		{"X-Api-Key", "sk-a b-123", ""},
		{"X-Api-Key", "acme", ""},
		{"Authorization", "sk-acme-123", ""},
		{"Authorization", "Basic sk-acme-123", ""},
	} {
		org, err := orgOf(&http.Request{Header: http.Header{c.header: {c.value}}})
		require.Equal(t, c.org, org, c.value)
		require.Equal(t, c.org == "", err != nil)
	}
}

// A client that takes nothing of the answer loses it, and so its slot.
func TestStalledReaderLosesItsSlot(t *testing.T) {
	s := openFor(t, inflight.Limits{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 1<<16); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}), 100*time.Millisecond)
	s.dial(t, len(ask(`"n":1`)), ask(`"n":1`))
	s.use(t, 1)
	s.use(t, 0)
}

// A client that stops in the middle of its request loses its slot too.
func TestStalledSenderLosesItsSlot(t *testing.T) {
	s := openFor(t, inflight.Limits{}, newModelServer(1000), 100*time.Millisecond)
	conn := s.dial(t, 1000, `{"model":"glm","messages":[`)
	s.use(t, 1)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "408 Request Timeout")
	s.use(t, 0)
}

// Patience is with each piece: a stream may last much longer.
func TestStreamOutlastsPatience(t *testing.T) {
	s := openFor(t, inflight.Limits{}, newModelServer(5), 100*time.Millisecond)
	require.True(t, strings.HasSuffix(text(t, s.stream(t, chatPath, "3")), "data: [DONE]\n\n"))

	// HTTP/2 ends a stream whose deadline passes, also while nobody writes.
	server := httptest.NewUnstartedServer(s.server.Handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	s.url, s.client = server.URL, server.Client()
	resp := s.stream(t, chatPath, "3")
	require.Equal(t, 2, resp.ProtoMajor)
	require.True(t, strings.HasSuffix(text(t, resp), "data: [DONE]\n\n"))
}

// dial sends a request, or the beginning of one, and nothing more.
func (s site) dial(t *testing.T, length int, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gateway\r\nX-Api-Key: sk-acme-123\r\nContent-Length: %d\r\n\r\n%s",
		chatPath, length, body)
	require.NoError(t, err)
	return conn
}
