package inflight

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"weak"
)

// asksUpgrade reports whether a handler may want to hijack the connection: the request asks to upgrade, or is a CONNECT.
func asksUpgrade(r *http.Request) bool {
	if r.Method == http.MethodConnect {
		return true
	}
	if len(r.Header["Upgrade"]) == 0 {
		return false
	}
	for _, list := range r.Header["Connection"] {
		for token := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// canHijack reports whether w, or what a http.ResponseController finds behind it, is a http.Hijacker.
func canHijack(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// A hold is a slot with two owners, the handler and the connection that it hijacked. The last to let go releases it.
type hold struct {
	slot   *Slot
	owners atomic.Int32
}

func (h *hold) letGo() {
	if h.owners.Add(-1) == 0 {
		h.slot.Release()
	}
}

// An upgradeWriter is the ResponseWriter of a request that may be upgraded. It learns of the hijacked connection, and
// otherwise does as what it wraps.
type upgradeWriter struct {
	http.ResponseWriter

	hold *hold // not in here, for the connection refers to it and should not keep all this
	conn atomic.Pointer[slotConn]
}

// wrapUpgrade wraps w, which can hijack. What it returns is a http.Flusher if and only if w is.
func wrapUpgrade(w http.ResponseWriter, slot *Slot) (http.ResponseWriter, *upgradeWriter) {
	up := &upgradeWriter{ResponseWriter: w, hold: &hold{slot: slot}}
	up.hold.owners.Store(1) // the handler
	if f, ok := w.(http.Flusher); ok {
		return &flushUpgradeWriter{up, f}, up
	}
	return up, up
}

// Unwrap lets a http.ResponseController find what w itself can do.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ReadFrom keeps the fast path of w for files and sockets, if it has one.
func (w *upgradeWriter) ReadFrom(src io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, src) }

func (w *upgradeWriter) WriteString(s string) (int, error) {
	return io.WriteString(w.ResponseWriter, s)
}

// Hijack makes the connection an owner of the slot. Errors are those of w.
func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hold.owners.Add(1)
	hijacked := false
	defer func() {
		if !hijacked {
			w.hold.letGo()
		}
	}()
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return conn, buf, err
	}
	hijacked = true
	c := &slotConn{Conn: conn, hold: w.hold}
	w.conn.Store(c)
	return c, buf, nil
}

// handlerReturned is called when the handler has returned or panicked. A slot that was taken stays with whoever took it.
func (w *upgradeWriter) handlerReturned() {
	if c := w.conn.Load(); c != nil && !c.closed.Load() {
		closeWith(w.hold.slot, c)
	}
	if w.hold.slot.taken.CompareAndSwap(false, true) {
		w.hold.letGo()
	}
}

type flushUpgradeWriter struct {
	*upgradeWriter

	flusher http.Flusher
}

func (w *flushUpgradeWriter) Flush() { w.flusher.Flush() }

func (w *flushUpgradeWriter) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// A slotConn is a hijacked connection, an owner of a slot until it is closed. It embeds the interface and not what is
// behind it, so there is no CloseWrite.
type slotConn struct {
	net.Conn

	hold   *hold
	closed atomic.Bool
}

// Close closes the connection and lets go of the slot, the first time.
func (c *slotConn) Close() error {
	defer func() {
		if c.closed.CompareAndSwap(false, true) {
			c.hold.letGo()
		}
	}()
	return c.Conn.Close()
}

// NetConn returns the connection itself, also from behind several middlewares.
func (c *slotConn) NetConn() net.Conn {
	if outer, ok := c.Conn.(*slotConn); ok {
		return outer.NetConn()
	}
	return c.Conn
}

// closeWith closes c when the slot's contexts end in any other way than by Release. What it leaves with the registry
// refers to c weakly, for c refers to the slot: one that is dropped unclosed must be found lost.
func closeWith[T any, C interface {
	*T
	io.Closer
}](s *Slot, c C) {
	e := newEnding(context.Background())
	s.attach(e)
	dropped := weak.Make((*T)(c))
	context.AfterFunc(e, func() {
		if c := C(dropped.Value()); c != nil && context.Cause(e) != ErrReleased { //nolint:errorlint // the very value
			_ = c.Close()
		}
	})
}
