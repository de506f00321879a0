package main

import (
	"net/http"
	"time"
)

// boundWrites bounds the time that a client takes to receive each piece of the answer. Without it a client that never
// reads would hold its slot for ever, because the handler would be stuck in Write.
func boundWrites(next http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&boundedWriter{w, http.NewResponseController(w), patience}, r)
	})
}

// A boundedWriter gives each Write and each Flush its own deadline. A stream may last as long as it likes.
type boundedWriter struct {
	http.ResponseWriter

	control  *http.ResponseController
	patience time.Duration
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	w.bound()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls. Nothing is left to send after it, so the deadline is lifted: on
// HTTP/2 it would end the stream while the model thinks.
func (w *boundedWriter) FlushError() error {
	w.bound()
	defer func() { _ = w.control.SetWriteDeadline(time.Time{}) }()
	return w.control.Flush()
}

// Unwrap lets http.ResponseController reach the rest.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bound ignores the error: a writer that knows no deadlines works without.
func (w *boundedWriter) bound() { _ = w.control.SetWriteDeadline(time.Now().Add(w.patience)) }
