package inflight

import (
	"io"
	"net/http"
	"time"
)

// A MiddlewareConfig says how Middleware takes slots. Its functions are called for each request, by many goroutines at
// once, before the request is admitted; if one panics nothing was taken.
type MiddlewareConfig struct {
	// Key names the key of a request. Required. An error refuses the request, with a *KeyError around it: status 400, or
	// 413 if it is a *http.MaxBytesError. It may read the request's body if it puts back what it read, as JSONField does.
	Key func(*http.Request) (Key, error)

	// Also names further keys that the slot counts against. May be nil.
	Also func(*http.Request) []Key

	// Weight is the weight of the slot; nil means 1. A negative weight is an error: status 500.
	Weight func(*http.Request) int

	// Label names the slot for people; nil means method and path.
	Label func(*http.Request) string

	// Skip says which requests are not limited and not counted, such as health checks. May be nil.
	Skip func(*http.Request) bool

	// Wait bounds how long a request waits for room. 0 and negative: it is refused at once.
	Wait time.Duration

	// Reject answers a request that was not admitted; nil means RejectProblem. StatusOf names the status for the error.
	Reject func(http.ResponseWriter, *http.Request, error)
}

// Middleware returns a middleware that takes a slot for each request and holds it until the handler has returned or, if
// the connection was hijacked (a WebSocket), until that is closed as well, whichever is later. It panics at once if
// there is no acquirer or no Key. What it returns is safe for concurrent use.
//
// The handler finds its slot by FromContext(r.Context()); that context ends with the slot. The slot is released also
// when the handler panics or calls runtime.Goexit, and the panic goes on. A handler that leaves work behind hands its
// slot on with Take. A request that is refused never reaches the handler.
//
// What it does not do:
//
//   - It does not wait for the client to have the last bytes. When the handler returns, net/http may still hold a few
//     KB of the response in a buffer, and the kernel more.
//   - It does not release the slot when the client goes away, for the handler may still be at work. Handlers should
//     heed their context. net/http ends it only once the request's body was read to EOF: before that it does not notice
//     that the client has gone. A handler that hangs keeps its slot, and the sweep reports it. For the same reason a
//     client that goes away during Wait leaves the queue at once only on HTTP/2 or if its body has been read.
//   - It does not see through what is inside. Put http.TimeoutHandler outside, TimeoutHandler(mw(h)): the handler outlives
//     the timeout and its slot stays. In mw(TimeoutHandler(h)) the slot would be given back while h still runs.
//     Likewise put it inside the handler that speaks h2c, where each stream counts, not outside, where each connection
//     would. On HTTP/2 there are no hijacked connections: each stream is a request and counts once.
//   - It does not touch the ResponseWriter, so that all that it can do works as without the middleware. The exception
//     is a request that asks to upgrade, or a CONNECT, on a ResponseWriter that can hijack. Only there is it seen that a
//     connection is hijacked.
//
// The connection that such a handler gets from Hijack is a wrapper whose Close lets go of the slot, also after the
// handler has panicked, unless the slot was taken. Its method NetConn() net.Conn gives the connection itself; closing
// that one directly is not seen. It offers no CloseWrite, since a half closed pair in a proxy would hold its slot for
// ever. Once the handler has returned, Cancel, Evict and MaxHold close the connection, for nothing else could end it.
// http.Server.Shutdown does not wait for hijacked connections; Registry.Shutdown does.
//
// The handler gets a copy of the request, for its context. What it, or a mux behind it, notes in Pattern, Form,
// PostForm and MultipartForm (but not the path values) is copied back when it returns: net/http then removes uploaded
// files, and what is outside can log the route.
func Middleware(a Acquirer, cfg MiddlewareConfig) func(http.Handler) http.Handler {
	if cfg.Key == nil {
		panic("inflight: Middleware: MiddlewareConfig.Key is nil")
	}
	if a == nil {
		panic("inflight: Middleware: Acquirer is nil")
	}
	if cfg.Reject == nil {
		cfg.Reject = RejectProblem
	}
	d := newDoor(a, cfg.Key, cfg.Also, cfg.Weight, cfg.Label, cfg.Wait)
	return func(next http.Handler) http.Handler {
		return &limited{door: d, skip: cfg.Skip, reject: cfg.Reject, next: next}
	}
}

// A limited is a handler behind a door.
type limited struct {
	door   *door
	skip   func(*http.Request) bool
	reject func(http.ResponseWriter, *http.Request, error)
	next   http.Handler
}

func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.skip != nil && l.skip(r) {
		l.next.ServeHTTP(w, r)
		return
	}
	body := r.Body
	slot, err := l.door.enter(r)
	if err != nil {
		defer putBack(r, body)
		l.reject(w, r, err)
		return
	}
	l.serve(w, r, body, slot)
}

func (l *limited) serve(w http.ResponseWriter, r *http.Request, body io.ReadCloser, slot *Slot) {
	var up *upgradeWriter
	defer func() { //nolint:contextcheck // a hijacked connection outlives the request's context
		switch {
		case up != nil:
			up.handlerReturned()
		case slot.taken.CompareAndSwap(false, true): // from here on Take gives nil
			slot.Release()
		}
	}()
	inner := r.WithContext(slot.Context(r.Context()))
	putBack(r, body)
	defer copyBack(r, inner)
	if asksUpgrade(r) && canHijack(w) {
		w, up = wrapUpgrade(w, slot)
	}
	l.next.ServeHTTP(w, inner)
}

// putBack undoes that Key put another body into the request, as JSONField does, once the copy with that body exists or
// the request is refused. net/http looks at the type of the body to decide whether the connection can be used again: if
// it saw another one, then after a handler that closed a long body unread it would take the rest for the next request.
func putBack(r *http.Request, body io.ReadCloser) {
	if !same(r.Body, body) {
		r.Body = body
	}
}

// same compares two bodies, of which one may be of a type that cannot be compared.
func same(a, b io.ReadCloser) (equal bool) {
	defer func() { _ = recover() }()
	return a == b
}

// copyBack notes in the original of a request what net/http, and handlers further out, look for there after next has
// returned. It writes only what has changed: others may be reading it.
func copyBack(r, inner *http.Request) {
	if inner.MultipartForm != r.MultipartForm {
		r.MultipartForm = inner.MultipartForm // net/http removes its files
	}
	if inner.Pattern != r.Pattern {
		r.Pattern = inner.Pattern
	}
	if r.Form == nil && inner.Form != nil {
		r.Form = inner.Form
	}
	if r.PostForm == nil && inner.PostForm != nil {
		r.PostForm = inner.PostForm
	}
}
