package console

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A problem is an error of RFC 9457.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// A statusError is an error that the client is told, with its status.
type statusError struct {
	status int
	detail string
}

func (e *statusError) Error() string { return e.detail }

func badRequest(detail string) error { return &statusError{http.StatusBadRequest, detail} }

func fail(w http.ResponseWriter, status int, detail string) {
	reply(w, "application/problem+json", status, problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

// failWith answers with an error, which nobody is told the text of unless it is a statusError.
func failWith(w http.ResponseWriter, err error) {
	var e *statusError
	if !errors.As(err, &e) {
		e = &statusError{http.StatusInternalServerError, "The console failed."}
	}
	fail(w, e.status, e.detail)
}

// answer replies with the JSON of what f returns, or with its error.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			failWith(w, err)
			return
		}
		reply(w, "application/json", http.StatusOK, v)
	}
}

func reply(w http.ResponseWriter, contentType string, status int, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(encode(v), '\n')) // an error means that the client is gone
}

func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // no value of this package fails
	}
	return body
}

// notAllowed answers methods that a path does not have.
func notAllowed(methods map[string]http.HandlerFunc) http.HandlerFunc {
	allowed := slices.Sorted(maps.Keys(methods))
	if methods[http.MethodGet] != nil {
		allowed = append(allowed, http.MethodHead)
	}
	allow := strings.Join(allowed, ", ")
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allow)
		fail(w, http.StatusMethodNotAllowed, "Only "+allow+" is allowed here.")
	}
}
