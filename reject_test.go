package inflight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/inflight-go/inflight"
	"github.com/stretchr/testify/require"
)

// A family is one of the shapes in which a refusal is written.
type family struct {
	reject      func(http.ResponseWriter, *http.Request, error)
	contentType string
}

func families() map[string]family {
	return map[string]family{
		"problem":   {inflight.RejectProblem, "application/problem+json"},
		"openai":    {inflight.RejectOpenAI, "application/json"},
		"anthropic": {inflight.RejectAnthropic, "application/json"},
	}
}

func limitError(scope inflight.Scope, weight, limit int) error {
	return &inflight.LimitError{
		Key: inflight.Key{Org: "acme", Model: "glm"}, Scope: scope, InUse: 4711, Limit: limit, Weight: weight, Waiters: 815,
	}
}

func TestStatusOf(t *testing.T) {
	// Each cause, from the one that decides to the one that is decided by all others.
	causes := []struct {
		err  error
		want int
	}{
		{&http.MaxBytesError{Limit: 1}, 413},
		{&inflight.KeyError{Err: errors.New("no model")}, 400},
		{context.Canceled, 499},
		{context.DeadlineExceeded, 504},
		{inflight.ErrClosed, 503},
		{limitError(inflight.ScopeTotal, 1, 4), 503},
		{errors.New("anything else"), 500},
	}
	for i, c := range causes {
		require.Equal(t, c.want, inflight.StatusOf(c.err), c.err)
		require.Equal(t, c.want, inflight.StatusOf(fmt.Errorf("outer: %w", c.err)), c.err)
		for _, later := range causes[i+1:] {
			require.Equal(t, c.want, inflight.StatusOf(errors.Join(later.err, c.err)), "%v with %v", c.err, later.err)
		}
	}
	for _, scope := range []inflight.Scope{inflight.ScopeKey, inflight.ScopeOrg, inflight.ScopeModel} {
		require.Equal(t, 429, inflight.StatusOf(limitError(scope, 1, 4)), scope)
		require.Equal(t, 429, inflight.StatusOf(limitError(scope, 1, inflight.Blocked)), scope)
	}
	require.Equal(t, 503, inflight.StatusOf(limitError(inflight.ScopeTotal, 1, inflight.Blocked)))
	require.Equal(t, 429, inflight.StatusOf(inflight.ErrLimit))
	require.Equal(t, 429, inflight.StatusOf(inflight.ErrTooManyWaiters))
	require.Equal(t, 413, inflight.StatusOf(&inflight.KeyError{Err: &http.MaxBytesError{Limit: 1}}))
	require.Equal(t, 400, inflight.StatusOf(&inflight.KeyError{Err: io.ErrUnexpectedEOF}))
	require.Equal(t, 504, inflight.StatusOf(&url.Error{Op: "Get", URL: "/", Err: context.DeadlineExceeded}))
}

// Errors that nobody should make, but somebody will.
func TestRejectOddErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 500},
		{(*inflight.LimitError)(nil), 429},
		{&inflight.KeyError{}, 400},
		{errors.Join(), 500},
		{uncomparable{"a", "b"}, 500},
	} {
		for name, f := range families() {
			w := httptest.NewRecorder()
			f.reject(w, httptest.NewRequest(http.MethodGet, "/", nil), c.err)
			require.Equal(t, c.want, w.Code, name)
			require.Equal(t, c.want, inflight.StatusOf(c.err))
		}
	}
}

type uncomparable []string

func (uncomparable) Error() string { return "uncomparable" }

// refuse-shape.
func TestRefuseShape(t *testing.T) {
	for _, c := range []struct {
		err        error
		status     int
		retryAfter string
		// What the APIs themselves answer in this case, so that their SDKs make of it what they make of that.
		title, openAIType, openAICode, anthropicType string
	}{
		{limitError(inflight.ScopeKey, 1, 4), 429, "1", "Too Many Requests", "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"},
		{limitError(inflight.ScopeOrg, 5, 4), 429, "", "Too Many Requests", "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"},
		{limitError(inflight.ScopeTotal, 1, 4), 503, "1", "Service Unavailable", "service_unavailable_error", "server_is_overloaded", "overloaded_error"},
		{inflight.ErrClosed, 503, "1", "Service Unavailable", "service_unavailable_error", "server_is_overloaded", "overloaded_error"},
		{&inflight.KeyError{Err: errors.New("acme glm")}, 400, "", "Bad Request", "invalid_request_error", "", "invalid_request_error"},
		{&http.MaxBytesError{Limit: 4711}, 413, "", "Content Too Large", "invalid_request_error", "", "request_too_large"},
		{context.Canceled, 499, "", "Client Closed Request", "invalid_request_error", "", "invalid_request_error"},
		{context.DeadlineExceeded, 504, "", "Gateway Timeout", "server_error", "", "timeout_error"},
		{errors.New("acme glm"), 500, "", "Internal Server Error", "server_error", "", "api_error"},
	} {
		var messages []string
		for name, f := range families() {
			w := httptest.NewRecorder()
			f.reject(w, httptest.NewRequest(http.MethodPost, "/", nil), c.err)
			body := w.Body.String()
			h := w.Result().Header
			require.Equal(t, c.status, w.Code)
			require.Equal(t, f.contentType, h.Get("Content-Type"))
			require.Equal(t, strconv.Itoa(len(body)), h.Get("Content-Length"))
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "no-store", h.Get("Cache-Control"))
			require.Equal(t, c.retryAfter, h.Get("Retry-After"), c.err)
			require.Len(t, h, 4+len(c.retryAfter))
			for _, secret := range []string{"acme", "glm", "4711", "815", "inflight"} {
				require.NotContains(t, body, secret)
			}

			message := ""
			switch name {
			case "problem":
				var got struct {
					Type, Title, Detail string
					Status              int
				}
				decodeExactly(t, body, &got)
				require.Equal(t, "about:blank", got.Type)
				require.Equal(t, c.title, got.Title)
				require.Equal(t, c.status, got.Status)
				message = got.Detail
			case "openai":
				var got struct {
					Error struct {
						Message, Type string
						Param, Code   *string
					}
				}
				decodeExactly(t, body, &got)
				require.Equal(t, c.openAIType, got.Error.Type)
				require.Nil(t, got.Error.Param)
				if c.openAICode == "" {
					require.Nil(t, got.Error.Code)
				} else {
					require.Equal(t, c.openAICode, *got.Error.Code)
				}
				require.Contains(t, body, `"param":null`)
				require.Contains(t, body, `"code":`)
				message = got.Error.Message
			case "anthropic":
				var got struct {
					Type  string
					Error struct{ Type, Message string }
				}
				decodeExactly(t, body, &got)
				require.Equal(t, "error", got.Type)
				require.Equal(t, c.anthropicType, got.Error.Type)
				message = got.Error.Message
			}
			require.NotEmpty(t, message)
			messages = append(messages, message)
		}
		require.Equal(t, []string{messages[0], messages[0], messages[0]}, messages)
	}
}

// decodeExactly decodes a body that has no field but those of v.
func decodeExactly(t *testing.T, body string, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(v), body)
	require.Equal(t, int64(len(body)), dec.InputOffset())
}

// A hintedError knows when to come back.
type hintedError struct {
	error
	wait time.Duration
}

func (e hintedError) RetryAfter() time.Duration { return e.wait }
func (e hintedError) Unwrap() error             { return e.error }

// retry-after-rounds-up.
func TestRetryAfterRoundsUp(t *testing.T) {
	full := limitError(inflight.ScopeKey, 1, 4)
	for _, c := range []struct {
		err  error
		want string
	}{
		{full, "1"},
		{inflight.ErrLimit, "1"},
		{limitError(inflight.ScopeKey, 4, 4), "1"},
		{limitError(inflight.ScopeKey, 0, 4), "1"}, // refused because a lowered limit is exceeded
		{hintedError{full, 1500 * time.Millisecond}, "2"},
		{hintedError{full, 2 * time.Second}, "2"},
		{hintedError{full, 2*time.Second + 1}, "3"},
		{hintedError{full, 1}, "1"},
		{hintedError{full, 0}, "1"},
		{hintedError{full, -5 * time.Second}, "1"},
		{hintedError{full, 1<<63 - 1}, "9223372037"},
		{hintedError{inflight.ErrClosed, 30 * time.Second}, "30"},
		{fmt.Errorf("outer: %w", errors.Join(errors.New("x"), hintedError{full, time.Minute})), "60"},

		// Trying again cannot help.
		{limitError(inflight.ScopeKey, 5, 4), ""},
		{limitError(inflight.ScopeTotal, 5, 4), ""},
		{limitError(inflight.ScopeKey, 1, inflight.Blocked), ""},
		{limitError(inflight.ScopeKey, 0, inflight.Blocked), ""},
		{hintedError{limitError(inflight.ScopeKey, 5, 4), time.Second}, ""},
		{hintedError{context.Canceled, time.Second}, ""},
		{hintedError{context.DeadlineExceeded, time.Second}, ""},
		{hintedError{&inflight.KeyError{}, time.Second}, ""},
		{hintedError{&http.MaxBytesError{}, time.Second}, ""},
		{hintedError{errors.New("x"), time.Second}, ""},
	} {
		for name, f := range families() {
			w := httptest.NewRecorder()
			w.Header().Set("Retry-After", "stale")
			f.reject(w, httptest.NewRequest(http.MethodGet, "/", nil), c.err)
			require.Equal(t, c.want, w.Header().Get("Retry-After"), "%s: %v", name, c.err)
		}
	}
}

// The errors as a registry makes them.
func TestRejectWhatARegistryRefuses(t *testing.T) {
	key := inflight.Key{Org: "acme", Model: "glm"}
	for name, c := range map[string]struct {
		limits     inflight.Limits
		opts       []inflight.Option
		close      bool
		status     int
		retryAfter string
	}{
		"key full":       {limits: inflight.Limits{Key: 1}, status: 429, retryAfter: "1"},
		"org full":       {limits: inflight.Limits{Org: 1}, status: 429, retryAfter: "1"},
		"total full":     {limits: inflight.Limits{Total: 1}, status: 503, retryAfter: "1"},
		"waited":         {limits: inflight.Limits{Key: 1}, opts: []inflight.Option{inflight.MaxWait(1)}, status: 429, retryAfter: "1"},
		"closed":         {close: true, status: 503, retryAfter: "1"},
		"weight":         {limits: inflight.Limits{Key: 2}, opts: []inflight.Option{inflight.Weight(3)}, status: 429},
		"weight, total":  {limits: inflight.Limits{Total: 2}, opts: []inflight.Option{inflight.Weight(3)}, status: 503},
		"blocked":        {limits: inflight.Limits{Model: inflight.Blocked}, status: 429},
		"blocked, total": {limits: inflight.Limits{Total: inflight.Blocked}, status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			reg, err := inflight.New(inflight.Config{Limits: inflight.Fixed(c.limits), MaxWaiters: 1})
			require.NoError(t, err)
			defer func() { require.NoError(t, reg.Close()) }()
			slot, err := reg.TryAcquire(key)
			if err == nil {
				defer slot.Release()
			}
			if c.close {
				require.NoError(t, reg.Close())
			}
			if c.opts == nil {
				c.opts = []inflight.Option{inflight.MaxWait(0)}
			}
			_, err = reg.Acquire(t.Context(), key, c.opts...)
			require.Error(t, err)
			w := httptest.NewRecorder()
			inflight.RejectProblem(w, httptest.NewRequest(http.MethodGet, "/", nil), err)
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.retryAfter, w.Header().Get("Retry-After"))
		})
	}
}

// What an outer handler has set is replaced, and what is not about the body stays.
func TestRejectReplacesHeaders(t *testing.T) {
	for _, f := range families() {
		w := httptest.NewRecorder()
		for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options", "Cache-Control"} {
			w.Header()[name] = []string{"a", "b"}
		}
		w.Header().Set("X-Request-Id", "7")
		f.reject(w, httptest.NewRequest(http.MethodGet, "/", nil), inflight.ErrClosed)
		h := w.Header()
		require.Equal(t, []string{f.contentType}, h["Content-Type"])
		require.Equal(t, []string{strconv.Itoa(w.Body.Len())}, h["Content-Length"])
		require.Equal(t, []string{"nosniff"}, h["X-Content-Type-Options"])
		require.Equal(t, []string{"no-store"}, h["Cache-Control"])
		require.Equal(t, "7", h.Get("X-Request-Id"))

		// As for http.Error: a Content-Encoding is the promise of a writer outside that encodes on the fly.
		w = httptest.NewRecorder()
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "9")
		f.reject(w, httptest.NewRequest(http.MethodGet, "/", nil), inflight.ErrClosed)
		require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
		require.NotContains(t, w.Header(), "Content-Length")
	}
}

func TestRejectHead(t *testing.T) {
	for _, f := range families() {
		get, head := httptest.NewRecorder(), httptest.NewRecorder()
		f.reject(get, httptest.NewRequest(http.MethodGet, "/", nil), inflight.ErrLimit)
		f.reject(head, httptest.NewRequest(http.MethodHead, "/", nil), inflight.ErrLimit)
		require.NotZero(t, get.Body.Len())
		require.Zero(t, head.Body.Len())
		require.Equal(t, http.StatusTooManyRequests, head.Code)
		require.Equal(t, get.Header(), head.Header())
	}
}

func TestRejectOverHTTP(t *testing.T) {
	for _, f := range families() {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.reject(w, r, inflight.ErrClosed)
		}))
		for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodPost} {
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := srv.Client().Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Positive(t, resp.ContentLength)
			if method != http.MethodHead {
				require.True(t, json.Valid(body))
			}
		}
		srv.Close()
	}
}

// A caller may do to the header what it likes: no value is shared with another answer or can grow into another one.
func TestRejectSharesNothing(t *testing.T) {
	for _, f := range families() {
		answer := func() http.Header {
			w := httptest.NewRecorder()
			f.reject(w, httptest.NewRequest(http.MethodGet, "/", nil), inflight.ErrLimit)
			return w.Header()
		}
		clean, h := answer(), answer()
		for name := range h {
			h[name] = append(h[name], "added")
			require.Equal(t, clean[name], h[name][:1])
		}
		spoilt := answer()
		for name := range spoilt {
			spoilt[name][0] = "spoilt"
		}
		require.Equal(t, clean, answer())
	}
}

// reusedWriter is a ResponseWriter as an HTTP server has one, whose own cost does not count.
type reusedWriter struct{ h http.Header }

func (w reusedWriter) Header() http.Header               { return w.h }
func (w reusedWriter) WriteHeader(int)                   {}
func (w reusedWriter) Write(p []byte) (int, error)       { return len(p), nil }
func (w reusedWriter) WriteString(s string) (int, error) { return len(s), nil }

// Under overload, refusing is what the server does most.
func TestRejectAllocations(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	for name, f := range families() {
		for _, err := range []error{
			limitError(inflight.ScopeKey, 1, 4), fmt.Errorf("outer: %w", limitError(inflight.ScopeTotal, 1, 4)), inflight.ErrClosed,
		} {
			w := reusedWriter{http.Header{}}
			require.LessOrEqual(t, testing.AllocsPerRun(100, func() { f.reject(w, r, err) }), 2.0, "%s: %v", name, err)
		}
	}
}

func BenchmarkReject(b *testing.B) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	w := reusedWriter{http.Header{}}
	err := limitError(inflight.ScopeKey, 1, 4)
	b.ReportAllocs()
	for b.Loop() {
		inflight.RejectProblem(w, r, err)
	}
}
