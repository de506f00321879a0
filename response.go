package inflight

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
)

// A streamBody is the body of a response, with the slot that it holds. The caller gets a copy of base's response: base
// may keep its own for as long as the call lasts, and what it keeps must not keep the slot from being found lost.
type streamBody struct {
	io.ReadCloser // base's body

	copied http.Response
	base   *http.Response
	slot   *Slot // nil once given back at the header
	call   *call
	forget func() bool // stops the end of the request's context from ending the slot; may be nil
	ended  atomic.Bool
}

// bind makes the slot, and the context of base, end with the response, of which it returns a copy. It returns false if
// they should end now.
func (t *transport) bind(c *call, res *http.Response, slot *Slot, req *http.Request) (*http.Response, bool) {
	b := &streamBody{ReadCloser: res.Body, copied: *res, base: res, slot: slot, call: c}
	if res.Request == &c.sent || res.Request == nil {
		b.copied.Request = req // its context lives on
	}
	conn, upgraded := res.Body.(io.ReadWriteCloser)
	upgraded = upgraded && res.StatusCode == http.StatusSwitchingProtocols
	if !upgraded && (res.Body == nil || res.Body == http.NoBody || req.Method == http.MethodHead) {
		return &b.copied, false
	}
	if t.releaseAtHeader || !upgraded && bodyless(res) {
		b.letGo()
	}
	if upgraded {
		d := &duplexBody{conn, b}
		b.copied.Body = d
		if b.slot != nil {
			closeWith(slot, d)
		}
		return &b.copied, true
	}
	b.copied.Body = b
	if ctx := req.Context(); b.slot != nil && ctx.Done() != nil {
		b.forget = releaseAfter(ctx, c.sent.Context(), slot.ticket)
	}
	return &b.copied, true
}

// releaseAfter releases a slot when the request's context has ended, but after base's, a child of it, which so ends for
// the same reason and not because the slot was released. If base's was ended by Cancel or MaxHold, the slot counts on.
func releaseAfter(request, base context.Context, slot ticket) (stop func() bool) {
	return context.AfterFunc(base, func() {
		if request.Err() != nil {
			slot.release()
		} else {
			context.AfterFunc(request, slot.release)
		}
	})
}

// bodyless reports whether there is nothing to read, going by the header. To ask whether the body is http.NoBody is not
// enough: on HTTP/2 it is something else.
func bodyless(res *http.Response) bool {
	return res.ContentLength == 0 || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
}

// letGo releases the slot while base may still be at work, for trailers at least: its context goes on until the body has
// ended, or nobody refers to that any more. What has no body is often not closed.
func (b *streamBody) letGo() {
	b.slot.detach(&b.call.ending)
	b.slot.Release()
	b.slot = nil
	runtime.AddCleanup(b, func(c *call) { c.ending.cancel(nil) }, b.call)
}

func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if b.copied.Trailer == nil {
			b.copied.Trailer = b.base.Trailer // those that were not announced
		}
		b.end()
	}
	return n, err
}

// Close closes the body and ends the slot.
func (b *streamBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// end ends the slot and the call, the first time.
func (b *streamBody) end() {
	if b.ended.Swap(true) {
		return
	}
	if b.forget != nil {
		b.forget()
	}
	if b.slot != nil {
		b.slot.Release() // and with it ends the call
	} else {
		b.call.ending.cancel(nil)
	}
}

// A duplexBody is the body of a 101. It embeds the interface and not what is behind it, so there is no CloseWrite.
type duplexBody struct {
	io.ReadWriteCloser

	stream *streamBody
}

// Close closes the connection and ends the slot.
func (b *duplexBody) Close() error {
	defer b.stream.end()
	return b.ReadWriteCloser.Close()
}

// detach undoes attach: e will not end with the slot.
func (s *Slot) detach(e *ending) {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	if h := s.liveLocked(); h != nil && h.more != nil {
		h.more.contexts = slices.DeleteFunc(h.more.contexts, func(c *ending) bool { return c == e })
	}
}

// live reports whether the slot still counts.
func (s *Slot) live() bool {
	s.reg.mu.Lock()
	defer s.reg.mu.Unlock()
	return s.liveLocked() != nil
}
