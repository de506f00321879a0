package inflight_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestS11UpgradeWriterOnAServer(t *testing.T) {
	for _, protocol := range hijackProtocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			got := make(map[string]any)
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, r *http.Request) {
				got["same"] = w == r.Context().Value(writerKey{})
				unwrapper, _ := w.(interface{ Unwrap() http.ResponseWriter })
				got["Unwrap"] = unwrapper.Unwrap() == r.Context().Value(writerKey{})
				_, got["Flusher"] = w.(http.Flusher)
				_, got["Hijacker"] = w.(http.Hijacker)
				_, got["ReaderFrom"] = w.(io.ReaderFrom)
				rc := http.NewResponseController(w)
				got["EnableFullDuplex"] = rc.EnableFullDuplex()
				got["SetReadDeadline"] = rc.SetReadDeadline(time.Now().Add(time.Hour))
				got["SetWriteDeadline"] = rc.SetWriteDeadline(time.Now().Add(time.Hour))
				_, _ = io.WriteString(w, "one,")
				_, _ = io.Copy(w, strings.NewReader("two"))
				got["Flush"] = rc.Flush()
			}), rememberWriter)
			p := dialSite(t, s)
			_, err := io.WriteString(p, handshake)
			require.NoError(t, err)
			body := p.response().Body
			closeLater(t, body)
			text, err := io.ReadAll(body)
			require.NoError(t, err)
			require.Equal(t, "one,two", string(text))
			require.Equal(t, map[string]any{
				"same": false, "Unwrap": true, "Flusher": true, "Hijacker": true, "ReaderFrom": true,
				"EnableFullDuplex": nil, "SetReadDeadline": nil, "SetWriteDeadline": nil, "Flush": nil,
			}, got)
			w.empty(t)
		})
	}
}

// bareWriter is a ResponseWriter that can do nothing else, and notes what was done.
type bareWriter struct{ log []string }

func (w *bareWriter) Header() http.Header { return http.Header{} }
func (w *bareWriter) Write(p []byte) (int, error) {
	w.log = append(w.log, "Write "+string(p))
	return len(p), nil
}
func (w *bareWriter) WriteHeader(int) {}

// fullWriter can do more.
type fullWriter struct{ bareWriter }

func (w *fullWriter) Flush() { w.log = append(w.log, "Flush") }

func (w *fullWriter) FlushError() error { w.log = append(w.log, "FlushError"); return errFlush }

func (w *fullWriter) ReadFrom(r io.Reader) (int64, error) {
	w.log = append(w.log, "ReadFrom")
	return io.Copy(&w.bareWriter, r)
}

func (w *fullWriter) WriteString(s string) (int, error) {
	w.log = append(w.log, "WriteString "+s)
	return len(s), nil
}

var errFlush = errors.New("cannot flush now")

func TestS11UpgradeWriterPassesOn(t *testing.T) {
	w := newWeb(t, 1)
	full := &fullWriter{}
	w.behind(func(w http.ResponseWriter, _ *http.Request) {
		as[http.Flusher](t, w).Flush()
		require.Equal(t, errFlush, http.NewResponseController(w).Flush(), "the error is not lost")
		_, err := as[io.ReaderFrom](t, w).ReadFrom(io.LimitReader(strings.NewReader("file"), 4))
		require.NoError(t, err)
		_, err = as[io.StringWriter](t, w).WriteString("text")
		require.NoError(t, err)
	}).ServeHTTP(&hijackableFull{full, hijackable{}}, upgradeRequest())
	require.Equal(t, []string{"Flush", "FlushError", "ReadFrom", "Write file", "WriteString text"}, full.log)
	w.empty(t)
}

// hijackableFull is a fullWriter that can hijack.
type hijackableFull struct {
	*fullWriter

	hijackable hijackable
}

func (h *hijackableFull) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.hijackable.Hijack() }

func TestS11CannotFlush(t *testing.T) {
	w := newWeb(t, 1)
	w.behind(func(w http.ResponseWriter, _ *http.Request) {
		_, flusher := w.(http.Flusher)
		require.False(t, flusher)
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		n, err := as[io.ReaderFrom](t, w).ReadFrom(strings.NewReader("x"))
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	}).ServeHTTP(hijackable{ResponseWriter: &bareWriter{}}, upgradeRequest())
}

// behindLogger is what an access log makes of a ResponseWriter: it hijacks by Unwrap only.
type behindLogger struct{ http.ResponseWriter }

func (w behindLogger) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestS11HijackByUnwrap(t *testing.T) {
	w := newWeb(t, 1)
	ours, theirs := net.Pipe()
	closeLater(t, theirs)
	var conn net.Conn
	w.behind(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		conn, _, err = http.NewResponseController(w).Hijack()
		require.NoError(t, err)
	}).ServeHTTP(behindLogger{behindLogger{hijackable{httptest.NewRecorder(), ours, nil, nil}}}, upgradeRequest())
	w.is(t, 1)
	require.NoError(t, conn.Close())
	w.empty(t)
}

func TestS11Connect(t *testing.T) {
	w := newWeb(t, 1)
	ours, theirs := net.Pipe()
	closeLater(t, theirs)
	var conn net.Conn
	w.behind(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		conn, _, err = as[http.Hijacker](t, w).Hijack()
		require.NoError(t, err)
	}).ServeHTTP(hijackable{httptest.NewRecorder(), ours, nil, nil}, httptest.NewRequest(http.MethodConnect, "/", http.NoBody))
	w.is(t, 1)
	require.NoError(t, conn.Close())
	w.empty(t)
}

func TestS14HijackResultUnchanged(t *testing.T) {
	w := newWeb(t, 1)
	ours, theirs := net.Pipe()
	closeLater(t, theirs)
	buf := bufio.NewReadWriter(bufio.NewReader(ours), bufio.NewWriter(ours))
	inner := w.behind(func(w http.ResponseWriter, _ *http.Request) {
		conn, gotBuf, err := as[http.Hijacker](t, w).Hijack()
		require.NoError(t, err)
		require.Same(t, buf, gotBuf)
		behind, ok := conn.(interface{ NetConn() net.Conn })
		require.True(t, ok)
		require.Same(t, ours, behind.NetConn(), "from behind both middlewares")
		_, half := conn.(interface{ CloseWrite() error })
		require.False(t, half)
		require.NoError(t, conn.Close())
	})
	outer := newWeb(t, 1)
	outer.behind(inner.ServeHTTP).ServeHTTP(hijackable{httptest.NewRecorder(), ours, buf, nil}, upgradeRequest())
	w.empty(t)
	outer.empty(t)
}

func TestS15HijackError(t *testing.T) {
	w := newWeb(t, 1)
	failed := errors.New("no")
	w.behind(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := as[http.Hijacker](t, w).Hijack()
		require.Nil(t, conn)
		require.Nil(t, buf)
		require.Equal(t, failed, err)
	}).ServeHTTP(hijackable{httptest.NewRecorder(), nil, nil, failed}, upgradeRequest())
	w.empty(t)
}

func TestS15FailedUpgrade(t *testing.T) {
	for _, protocol := range hijackProtocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no such protocol", http.StatusBadRequest)
			}))
			p := dialSite(t, s)
			for range 3 {
				_, err := io.WriteString(p, handshake)
				require.NoError(t, err)
				res := p.response()
				require.Equal(t, http.StatusBadRequest, res.StatusCode)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(t, err)
				w.becomes(t, 0)
			}
			w.empty(t)
		})
	}
}

func TestHijackErrorsUnchanged(t *testing.T) {
	w := newWeb(t, 1)
	errs := make(chan error, 2)
	s := newSite(t, "h1", w.behind(func(w http.ResponseWriter, _ *http.Request) {
		conn, _ := upgrade(w)
		defer func() { _ = conn.Close() }()
		_, _, err := http.NewResponseController(w).Hijack()
		errs <- err
		_, err = w.Write([]byte("x"))
		errs <- err
	}))
	p := dialUpgrade(t, s)
	require.Equal(t, http.ErrHijacked, receive(t, errs))
	require.Equal(t, http.ErrHijacked, receive(t, errs))
	p.hangsUp()
	w.becomes(t, 0)
	w.empty(t)
}
