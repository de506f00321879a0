package console

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// patience is how long a watcher may take to receive an update.
	patience = 10 * time.Second

	// reconnect is when a page comes back that has lost its connection.
	reconnect = 2 * time.Second
)

// events sends the state of the registry as server-sent events: the history once, then a state each period.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, "q", "org", "model", "state")
	if err != nil {
		failWith(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	if r.Method == http.MethodHead {
		return
	}
	s := &eventStream{w: w, control: http.NewResponseController(w)}
	if err := s.flush(); errors.Is(err, http.ErrNotSupported) {
		fail(w, http.StatusInternalServerError, "Something around the console cannot stream: "+err.Error()+".")
		return
	}
	defer h.feed.watch()()
	ended := h.shutdowns.channel(r)

	begun := s.retry(reconnect) && s.send("history", encode(h.feed.history()))
	fresh := time.Now().Add(-h.feed.period()) // what others have got last is new enough for the first
	for begun && s.send("state", h.feed.state(h.feed.since(fresh), q.filter)) {
		// All watchers wake at the same times, so that one snapshot serves them all.
		fresh = time.Now().Truncate(h.feed.period()).Add(h.feed.period())
		timer := time.NewTimer(time.Until(fresh))
		select {
		case <-timer.C:
			continue
		case <-ended:
		case <-r.Context().Done():
		}
		timer.Stop()
		return
	}
}

// An eventStream writes server-sent events. Its methods return false when one cannot be written.
type eventStream struct {
	w       io.Writer
	control *http.ResponseController
}

func (s *eventStream) retry(d time.Duration) bool { return s.write("retry: %d\n\n", d.Milliseconds()) }

// send sends data, which must have no newline.
func (s *eventStream) send(event string, data []byte) bool {
	return s.write("event: %s\ndata: %s\n\n", event, data)
}

func (s *eventStream) write(format string, args ...any) bool {
	s.bound()
	_, err := fmt.Fprintf(s.w, format, args...)
	return err == nil && s.flush() == nil
}

func (s *eventStream) flush() error {
	s.bound()
	return s.control.Flush()
}

// bound bounds the next write. A writer that knows no deadlines works without.
func (s *eventStream) bound() { _ = s.control.SetWriteDeadline(time.Now().Add(patience)) }

// shutdowns tells streams when their server shuts down, for Server.Shutdown would wait for them.
type shutdowns struct {
	mu sync.Mutex
	of map[*http.Server]<-chan struct{}
}

// channel returns what is closed when the server of the request shuts down.
func (s *shutdowns) channel(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.of[server]
	if ended == nil {
		begun := make(chan struct{})
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(begun) }))
		s.of[server], ended = begun, begun
	}
	return ended
}
