package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/console"
)

// A watcher has a page open, in a bubble.
type watcher struct {
	w     *lockedRecorder
	leave context.CancelFunc
	left  chan struct{}
	read  int
}

// A lockedRecorder can be read while it is written.
type lockedRecorder struct {
	mu sync.Mutex
	*httptest.ResponseRecorder
}

func (r *lockedRecorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(p)
}

func watch(t *testing.T, h http.Handler, query string) *watcher {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	w := &watcher{w: &lockedRecorder{ResponseRecorder: httptest.NewRecorder()}, leave: leave, left: make(chan struct{})}
	go func() {
		defer close(w.left)
		h.ServeHTTP(w.w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/events"+query, http.NoBody))
	}()
	t.Cleanup(w.close)
	synctest.Wait()
	return w
}

// close closes the page.
func (w *watcher) close() {
	w.leave()
	<-w.left
}

// An event is a server-sent one.
type event struct {
	name string
	data json.RawMessage
}

// events returns those that have come since the last call.
func (w *watcher) events() (events []event) {
	synctest.Wait()
	w.w.mu.Lock()
	defer w.w.mu.Unlock()
	text := w.w.Body.String()[w.read:]
	w.read += len(text)
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(block, "\n")
		if ok {
			events = append(events, event{strings.TrimPrefix(name, "event: "), json.RawMessage(strings.TrimPrefix(data, "data: "))})
		}
	}
	return events
}

func names(events []event) (names []string) {
	for _, e := range events {
		names = append(names, e.name)
	}
	return names
}

func ids(t *testing.T, e event) []any {
	t.Helper()
	return items(t, decode[map[string]map[string]any](t, strings.NewReader(string(e.data)))["slots"], "id")
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 2})})
		h := newConsole(reg)
		hold(t, reg, acme)
		w := watch(t, h, "?org=acme")
		require.Equal(t, "text/event-stream", w.w.Header().Get("Content-Type"))
		require.True(t, strings.HasPrefix(w.w.Body.String(), "retry: 2000\n\n"))
		require.True(t, w.w.Flushed)
		first := w.events()
		require.Equal(t, []string{"history", "state"}, names(first))
		require.JSONEq(t, "[]", string(first[0].data))
		require.Equal(t, []any{"1"}, ids(t, first[1]))

		hold(t, reg, acme)
		hold(t, reg, globex)
		_, err := reg.TryAcquire(acme)
		require.Error(t, err)
		require.Empty(t, w.events())
		time.Sleep(time.Second)
		second := w.events()
		require.Equal(t, []string{"state"}, names(second))
		require.Equal(t, []any{"1", "2"}, ids(t, second[0]))
		sample := decode[map[string]map[string]any](t, strings.NewReader(string(second[0].data)))["sample"]
		require.Equal(t, []any{3.0, 2.0, 1.0}, []any{sample["in_use"], sample["admitted_per_second"], sample["rejected_per_second"]})
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"state", "state", "state"}, names(w.events()))

		w.close()
		time.Sleep(10 * time.Second)
		require.Empty(t, w.events())
	})
}

// The history begins with the first watcher and has a gap where nobody watched.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newConsole(newRegistry(t, inflight.Config{}))
		length := func() (n, gaps int) {
			samples := decode[[]map[string]any](t, do(t, h, http.MethodGet, "/api/history", "").Body)
			for _, s := range samples {
				if s["admitted_per_second"] == nil {
					gaps++
				}
			}
			return len(samples), gaps
		}
		for _, want := range [][2]int{{10, 1}, {20, 2}} {
			w := watch(t, h, "")
			time.Sleep(9500 * time.Millisecond)
			w.close()
			n, gaps := length()
			require.Equal(t, want, [2]int{n, gaps})
			time.Sleep(time.Minute + 500*time.Millisecond)
		}
		w := watch(t, h, "")
		require.Len(t, decode[[]any](t, strings.NewReader(string(w.events()[0].data))), 20)
		time.Sleep(time.Hour)
		n, gaps := length()
		require.Equal(t, [2]int{300, 0}, [2]int{n, gaps})
	})
}

// However many watch, each update costs one look at the registry.
func TestWatchersShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64 // a look asks once for the limits of each key
		reg := newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits {
			looks.Add(1)
			return inflight.Limits{}
		}})
		h := console.Handler(reg, console.Config{Interval: 2 * time.Second})
		hold(t, reg, acme)
		hold(t, reg, globex)
		looks.Store(0)
		var watchers []*watcher
		for _, query := range []string{"", "", "?q=acme", "?q=acme", "?q=globex"} {
			watchers = append(watchers, watch(t, h, query))
			time.Sleep(100 * time.Millisecond)
		}
		require.EqualValues(t, 2, looks.Load())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2*6, looks.Load())
		for i, want := range [][]any{{"1", "2"}, {"1", "2"}, {"1"}, {"1"}, {"2"}} {
			events := watchers[i].events()
			require.Len(t, events, 7)
			require.Equal(t, want, ids(t, events[6]))
		}
	})
}

// A look that takes long comes seldom.
func TestSlowLooksComeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := false
		reg := newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits {
			if slow {
				time.Sleep(2 * time.Second)
			}
			return inflight.Limits{}
		}})
		hold(t, reg, acme)
		slow = true
		w := watch(t, newConsole(reg), "")
		time.Sleep(125 * time.Second)
		events := w.events()
		require.Equal(t, 1+1+6, len(events), "every 20 s")
		sample := decode[map[string]map[string]any](t, strings.NewReader(string(events[7].data)))["sample"]
		require.InDelta(t, 0, sample["admitted_per_second"], 0, "that is no gap")
	})
}

// A look that others have overtaken does not go into the history, where it would turn time back.
func TestOvertakenLookIsNoSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		reg := newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits {
			time.Sleep(time.Duration(delay.Swap(0)))
			return inflight.Limits{}
		}})
		h := newConsole(reg)
		hold(t, reg, acme)
		delay.Store(int64(1700 * time.Millisecond))
		slow := watch(t, h, "")
		hold(t, reg, acme)
		time.Sleep(1500 * time.Millisecond) // what the slow one will have got is not new enough for the other
		fast := watch(t, h, "")
		require.Equal(t, []string{"history", "state"}, names(fast.events()))
		time.Sleep(200 * time.Millisecond)

		events := slow.events()
		require.Equal(t, []string{"history", "state"}, names(events))
		require.NotContains(t, string(events[1].data), `"sample"`)
		history := decode[[]map[string]any](t, do(t, h, http.MethodGet, "/api/history", "").Body)
		require.Len(t, history, 1)
		require.InEpsilon(t, 2, history[0]["in_use"], 0)
	})
}

// An update is not kept when the last watcher has gone: the next sees how things are then.
func TestUpdateIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{})
		h := newConsole(reg)
		w := watch(t, h, "")
		w.close()
		hold(t, reg, acme)
		w = watch(t, h, "")
		require.Equal(t, []any{"1"}, ids(t, w.events()[1]))
	})
}

func TestBadStream(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	w := httptest.NewRecorder()
	h.ServeHTTP(struct{ http.ResponseWriter }{w}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", http.NoBody))
	require.Contains(t, problem(t, w, http.StatusInternalServerError), "cannot stream")
}

// A brokenWriter fails from the nth write on.
type brokenWriter struct {
	*httptest.ResponseRecorder
	left int
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("gone")
	}
	return w.ResponseRecorder.Write(p)
}

func TestStreamEndsWhenItCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newConsole(newRegistry(t, inflight.Config{}))
		start := time.Now()
		h.ServeHTTP(&brokenWriter{httptest.NewRecorder(), 4},
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/events", http.NoBody))
		require.Equal(t, 2*time.Second, time.Since(start).Round(time.Second))
	})
}

// pipeListener listens for connections that live in memory, so that a whole server runs in a bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// serve serves h in a bubble.
func serve(h http.Handler) (*http.Server, *pipeListener) {
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	return s, l
}

// dial sends a request to a server in a bubble.
func (l *pipeListener) dial(t *testing.T, path string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	l.conns <- server
	_, err := io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: console\r\n\r\n")
	require.NoError(t, err)
	return client
}

// received reads a connection to its end.
func received(conn net.Conn) <-chan string {
	all := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(conn)
		all <- string(text)
	}()
	return all
}

// A server that shuts down does not have to wait until the last page is closed.
func TestShutdownEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serve(newConsole(newRegistry(t, inflight.Config{})))
		events := received(l.dial(t, "/api/events"))
		time.Sleep(90 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, s.Shutdown(ctx))
		require.True(t, strings.HasSuffix(<-events, "\r\n0\r\n\r\n"), "the response is complete")
	})
}

// Nor for one whose page was there before, and which what is around the console lets through only then.
func TestShutdownEndsLateStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newConsole(newRegistry(t, inflight.Config{}))
		s, l := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/events" {
				time.Sleep(time.Second)
			}
			h.ServeHTTP(w, r)
		}))
		page := received(l.dial(t, "/"))
		events := received(l.dial(t, "/api/events"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		require.Contains(t, <-page, "200 OK")
		require.Contains(t, <-events, "event: state")
	})
}

// A page that has gone to sleep without saying so does not keep its stream.
func TestStalledWatcherIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serve(newConsole(newRegistry(t, inflight.Config{})))
		client := l.dial(t, "/api/events")
		time.Sleep(15 * time.Second) // and reads nothing
		synctest.Wait()
		_ = client.SetReadDeadline(time.Now().Add(time.Hour))
		_, err := io.ReadAll(client)
		require.NoError(t, err, "the server has closed the connection")
		require.NoError(t, s.Close())
	})
}
