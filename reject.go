package inflight

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// statusClientGone is nginx's status for a client that went away. Nobody is left to read it; it is for access logs.
const statusClientGone = 499

// StatusOf returns the HTTP status that an error of this package deserves. The first that applies, in this order:
//
//   - 413 if the chain holds an *http.MaxBytesError,
//   - 400 if it holds a *KeyError,
//   - 499 if it is context.Canceled: the client has gone,
//   - 504 if it is context.DeadlineExceeded,
//   - 503 if it is ErrClosed, or if the limit on the total refused,
//   - 429 if it is any other ErrLimit,
//   - 500 for everything else, nil included.
//
// It is safe for concurrent use.
func StatusOf(err error) int {
	status, _ := new(answer).judge(err)
	return status
}

// RejectProblem answers a refused request with StatusOf(err) and a problem of RFC 9457 (application/problem+json).
//
// Like RejectOpenAI and RejectAnthropic, it tells the client nothing but the kind of the refusal: the body is one of a
// few constants and names no org, model, limit or holder. Log err to know more. Retry-After is set, in whole seconds,
// where the same request may be admitted later: after a full limit, and after ErrClosed since another instance may
// answer. An error in the chain that has a method RetryAfter() time.Duration sets its value, rounded up and at least
// 1 s, which is also the default. A HEAD request gets no body. All three are safe for concurrent use.
func RejectProblem(w http.ResponseWriter, r *http.Request, err error) {
	reject(w, r, err, "application/problem+json", problemBody)
}

// RejectOpenAI is RejectProblem in the shape of the OpenAI API, whose SDKs turn it into their own typed errors.
func RejectOpenAI(w http.ResponseWriter, r *http.Request, err error) {
	reject(w, r, err, "application/json", openAIBody)
}

// RejectAnthropic is RejectProblem in the shape of the Anthropic API, whose SDKs turn it into their own typed errors.
func RejectAnthropic(w http.ResponseWriter, r *http.Request, err error) {
	reject(w, r, err, "application/json", anthropicBody)
}

// reject writes the answer. Under overload this is the hot path, so nothing is encoded: a body is a string constant,
// which nobody can change, and the header's values share the one array of the answer.
func reject(w http.ResponseWriter, r *http.Request, err error, contentType string, bodyOf func(status int) string) {
	a := new(answer)
	status, again := a.judge(err)
	body := bodyOf(status)

	h := w.Header()
	a.values = [...]string{contentType, "nosniff", "no-store", strconv.Itoa(len(body)), ""}
	h["Content-Type"] = a.values[0:1:1]
	h["X-Content-Type-Options"] = a.values[1:2:2]
	h["Cache-Control"] = a.values[2:3:3]
	h["Content-Length"] = a.values[3:4:4]
	if _, encoded := h["Content-Encoding"]; encoded {
		// Something outside encodes what is written to w: only it will know the length.
		delete(h, "Content-Length")
	}
	delete(h, "Retry-After")
	if again {
		a.values[4] = strconv.FormatInt(a.retryAfter(err), 10)
		h["Retry-After"] = a.values[4:5:5]
	}

	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body) // the client may be gone: there is nobody to tell
	}
}

// An answer is the working memory of one refusal, in one piece so that it costs one allocation: the targets of
// errors.As and the values of the header would each be one of their own.
type answer struct {
	tooLarge *http.MaxBytesError
	noKey    *KeyError
	limit    *LimitError
	bare     bool // the error is limit itself
	hint     interface{ RetryAfter() time.Duration }
	values   [5]string
}

// judge returns the status for err, and whether the same request may be admitted later.
func (a *answer) judge(err error) (status int, again bool) {
	// What a registry refuses with has no chain to search, which would take longer than all the rest.
	if bare, ok := err.(*LimitError); ok && bare != nil { //nolint:errorlint // what is wrapped is found below
		a.limit, a.bare = bare, true
		return a.judgeLimit()
	}
	switch {
	case errors.As(err, &a.tooLarge):
		return http.StatusRequestEntityTooLarge, false
	case errors.As(err, &a.noKey):
		return http.StatusBadRequest, false
	case errors.Is(err, context.Canceled):
		return statusClientGone, false
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, false
	case errors.Is(err, ErrClosed):
		return http.StatusServiceUnavailable, true
	case errors.As(err, &a.limit) && a.limit != nil:
		return a.judgeLimit()
	case errors.Is(err, ErrLimit):
		return http.StatusTooManyRequests, true
	default:
		return http.StatusInternalServerError, false
	}
}

func (a *answer) judgeLimit() (status int, again bool) {
	// A weight above the limit, and every weight is above a blocked one, stays too heavy.
	again = a.limit.Weight <= a.limit.Limit
	if a.limit.Scope == ScopeTotal {
		return http.StatusServiceUnavailable, again
	}
	return http.StatusTooManyRequests, again
}

// retryAfter returns the seconds to wait, rounded up and at least 1.
func (a *answer) retryAfter(err error) int64 {
	if a.bare || !errors.As(err, &a.hint) {
		return 1
	}
	wait := a.hint.RetryAfter()
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return max(seconds, 1)
}

// What a refusal says, whatever the shape.
const (
	sayBadRequest = "The request does not say what it is for."
	sayTooLarge   = "The request body is too large."
	sayLimit      = "Too many requests in flight."
	sayGone       = "The client closed the request."
	sayInternal   = "Internal server error."
	sayFull       = "The server cannot take the request now."
	sayTimeout    = "The request timed out while it waited for its turn."
)

func problemBody(status int) string {
	switch status {
	case http.StatusBadRequest:
		return `{"type":"about:blank","title":"Bad Request","status":400,"detail":"` + sayBadRequest + `"}`
	case http.StatusRequestEntityTooLarge:
		return `{"type":"about:blank","title":"Content Too Large","status":413,"detail":"` + sayTooLarge + `"}`
	case http.StatusTooManyRequests:
		return `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"` + sayLimit + `"}`
	case statusClientGone:
		return `{"type":"about:blank","title":"Client Closed Request","status":499,"detail":"` + sayGone + `"}`
	case http.StatusServiceUnavailable:
		return `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"` + sayFull + `"}`
	case http.StatusGatewayTimeout:
		return `{"type":"about:blank","title":"Gateway Timeout","status":504,"detail":"` + sayTimeout + `"}`
	default:
		return `{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"` + sayInternal + `"}`
	}
}

func openAIBody(status int) string {
	const (
		invalid = `","type":"invalid_request_error","param":null,"code":null}}`
		limited = `","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`
		full    = `","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}`
		failed  = `","type":"server_error","param":null,"code":null}}`
	)
	switch status {
	case http.StatusBadRequest:
		return `{"error":{"message":"` + sayBadRequest + invalid
	case http.StatusRequestEntityTooLarge:
		return `{"error":{"message":"` + sayTooLarge + invalid
	case http.StatusTooManyRequests:
		return `{"error":{"message":"` + sayLimit + limited
	case statusClientGone:
		return `{"error":{"message":"` + sayGone + invalid
	case http.StatusServiceUnavailable:
		return `{"error":{"message":"` + sayFull + full
	case http.StatusGatewayTimeout:
		return `{"error":{"message":"` + sayTimeout + failed
	default:
		return `{"error":{"message":"` + sayInternal + failed
	}
}

func anthropicBody(status int) string {
	const start = `{"type":"error","error":{"type":"`
	switch status {
	case http.StatusBadRequest:
		return start + `invalid_request_error","message":"` + sayBadRequest + `"}}`
	case http.StatusRequestEntityTooLarge:
		return start + `request_too_large","message":"` + sayTooLarge + `"}}`
	case http.StatusTooManyRequests:
		return start + `rate_limit_error","message":"` + sayLimit + `"}}`
	case statusClientGone:
		return start + `invalid_request_error","message":"` + sayGone + `"}}`
	case http.StatusServiceUnavailable:
		return start + `overloaded_error","message":"` + sayFull + `"}}`
	case http.StatusGatewayTimeout:
		return start + `timeout_error","message":"` + sayTimeout + `"}}`
	default:
		return start + `api_error","message":"` + sayInternal + `"}}`
	}
}
