package inflight

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A TransportConfig says how a transport takes slots. Its functions are called for each request, by many goroutines at
// once, before the request is admitted; if one panics nothing was taken.
type TransportConfig struct {
	// Key names the key of a request. Required. An error fails the request, with a *KeyError around it. The function
	// gets a copy of the request, whose body it may read if it puts back what it read, as JSONField does: the base then
	// sends that body, and the caller's request stays as it was.
	Key func(*http.Request) (Key, error)

	// Also names further keys that the slot counts against. May be nil.
	Also func(*http.Request) []Key

	// Weight is the weight of the slot; nil means 1. A negative weight is an error.
	Weight func(*http.Request) int

	// Label names the slot for people; nil means method and path.
	Label func(*http.Request) string

	// Wait bounds how long a request waits for room, besides its context. 0 and negative: it is refused at once.
	Wait time.Duration

	// ReleaseAtHeader gives the slot back when the response's header is there, while the body is still to come: for
	// limits on requests rather than on transfers, such as downloads of large files. The download goes on uncounted,
	// and is not reached by Cancel, Evict and MaxHold.
	ReleaseAtHeader bool

	// Reuse lets a request whose context carries a live slot (the innermost, see FromContext) of the same registry for
	// the same key go through on that one, and leaves it alone. It is for a handler behind Middleware that calls
	// upstream through this transport: without Reuse such a request counts twice. It needs the acquirer to be the
	// *Registry itself, or to have a method Registry that returns it.
	Reuse bool
}

// NewTransport returns a http.RoundTripper that takes a slot for each request, sends it by base, and holds the slot until
// the response has ended: the first of the end of its body, an error in reading it, its Close, and the end of the
// request's context. A nil base means http.DefaultTransport. It panics at once if there is no acquirer or no Key. What
// it returns is safe for concurrent use.
//
// The slot ends earlier, when RoundTrip returns, if base failed or panicked, or if the response has no body: HEAD, 204,
// 304 and a length of 0. It ends later after a 101, with whose body client and server go on talking: that stays an
// io.ReadWriteCloser and holds the slot until it is closed, whatever becomes of the request's context.
//
// A refused request never reaches base, and its body is closed. The error is that of Acquire: with http.Client,
// errors.Is(err, ErrLimit) works, and the Timeout of the client bounds the wait as well. Redirects take a slot each, one
// after the other; what base retries by itself stays within one slot.
//
// A server may answer before it has read the whole request, say with 413. The slot then ends with the response's body,
// though base may still be sending.
//
// Base gets a context that ends with the slot, so Cancel, Evict and MaxHold abort the call; they close the body of a
// 101. A response that is dropped, neither read to its end nor closed, keeps its slot until its context ends. If the
// garbage collector finds it first, the sweep reports the slot as lost.
//
// The response is a copy of that of base, and its Request is the caller's. CloseIdleConnections is passed on to base.
func NewTransport(base http.RoundTripper, a Acquirer, cfg TransportConfig) http.RoundTripper {
	if cfg.Key == nil {
		panic("inflight: NewTransport: TransportConfig.Key is nil")
	}
	if a == nil {
		panic("inflight: NewTransport: Acquirer is nil")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{
		base: base, door: newDoor(a, cfg.Key, cfg.Also, cfg.Weight, cfg.Label, cfg.Wait),
		releaseAtHeader: cfg.ReleaseAtHeader, reuse: cfg.Reuse,
	}
}

type transport struct {
	base            http.RoundTripper
	door            *door
	releaseAtHeader bool
	reuse           bool
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := &call{sent: *req.WithContext(ctx)}
	slot, err := t.admit(ctx, c, req.Body)
	if err != nil {
		return nil, err
	}
	if slot == nil {
		return t.base.RoundTrip(&c.sent)
	}
	bound := false
	defer func() {
		if !bound {
			slot.Release() // and with it ends the context of base
		}
	}()
	slot.attachCall(ctx, c)
	res, err := t.base.RoundTrip(&c.sent)
	if err != nil || res == nil {
		return res, err
	}
	res, bound = t.bind(c, res, slot, req)
	return res, nil
}

// admit takes a slot for c.sent, and leaves there the body that Key left. Without error the slot is nil if one is
// reused. On an error, or a panic, the body is closed.
func (t *transport) admit(ctx context.Context, c *call, body io.ReadCloser) (slot *Slot, err error) {
	var lent *lentBody
	if body != nil && body != http.NoBody {
		lent = &lentBody{ReadCloser: body}
		c.sent.Body = lent
	}
	admitted := false
	defer func() {
		if admitted {
			return
		}
		if c.sent.Body != nil {
			_ = c.sent.Body.Close()
		}
		_ = lent.Close()
	}()
	k, err := t.door.key(&c.sent)
	if err != nil {
		return nil, &KeyError{err}
	}
	if !t.reuse || !t.covered(ctx, k) {
		if slot, err = t.door.enterAs(ctx, k, &c.sent); err != nil {
			return nil, err
		}
	}
	c.sent.Body = lent.after(c.sent.Body)
	admitted = true
	return slot, nil
}

// covered reports whether the context carries a live slot of the transport's registry for the key.
func (t *transport) covered(ctx context.Context, k Key) bool {
	s := FromContext(ctx)
	return s != nil && s.reg != nil && s.reg == t.door.home && s.key == k && s.live()
}

// A call is what base gets. It does not refer to the slot, nor does anything that the registry or base keep of it: a
// response that is dropped must be found lost. It is in one piece, so that a round trip allocates little.
type call struct {
	sent http.Request // the caller's request, with a body and a context of its own

	ending ending // its context
	more   more   // where the registry keeps ending
	first  [1]*ending
}

// attachCall gives c a context that ends with the slot, as attach does.
func (s *Slot) attachCall(parent context.Context, c *call) {
	ctx, cancel := context.WithCancelCause(parent)
	c.ending = ending{ctx, cancel}
	c.sent = *c.sent.WithContext(ctx)

	s.reg.mu.Lock()
	if h := s.liveLocked(); h != nil && h.more == nil {
		c.more.contexts = c.first[:0]
		h.more = &c.more
	}
	s.reg.mu.Unlock()
	s.attach(&c.ending)
}

// A lentBody is the body of a request while Key may read it and put another in its place. The original is closed once.
type lentBody struct {
	io.ReadCloser

	closed atomic.Bool
}

// Close closes the original.
func (b *lentBody) Close() error {
	if b == nil || b.closed.Swap(true) {
		return nil
	}
	return b.ReadCloser.Close()
}

// after returns the body to send, given the one that Key left: the original itself if it left that, since net/http has
// fast paths for some types.
func (b *lentBody) after(left io.ReadCloser) io.ReadCloser {
	switch {
	case b == nil:
		return left
	case left == nil:
		left = http.NoBody
	}
	if left, ok := left.(*lentBody); ok && left == b {
		return b.ReadCloser
	}
	return &replacedBody{left, b}
}

// A replacedBody is a body that Key put in the place of the original. It closes both.
type replacedBody struct {
	io.ReadCloser

	lent *lentBody
}

// Close closes what Key left and the original.
func (b *replacedBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.lent.Close()) }
