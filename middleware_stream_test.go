package inflight_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// A pipeListener accepts the connections it is given, which hold nothing back: what is not read has not been sent.
type pipeListener struct {
	net.Listener

	conns chan net.Conn
	close sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *pipeListener) Close() error {
	l.close.Do(func() { close(l.conns) })
	return nil
}

func TestS1ReleasedBeforeTheLastBytesAreSent(t *testing.T) {
	w := newWeb(t, 1)
	returned := make(chan bool, 1)
	h := w.behind(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 2000))
		returned <- true
	})
	l := &pipeListener{conns: make(chan net.Conn, 1)}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()

	client, server := net.Pipe()
	l.conns <- server
	_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	receive(t, returned)
	w.becomes(t, 0) // though nothing was read

	res, err := http.ReadResponse(bufio.NewReader(client), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Len(t, body, 2000)
	require.NoError(t, res.Body.Close())
	require.NoError(t, client.Close())
	require.NoError(t, srv.Close())
	require.ErrorIs(t, receive(t, done), http.ErrServerClosed)
	w.empty(t)
}

func TestS2ClientThatNeverReads(t *testing.T) {
	for _, protocol := range []string{"h1", "tls"} {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			errs := make(chan error, 1)
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				event := make([]byte, 1<<20)
				for {
					if err := rc.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
						errs <- err
						return
					}
					if _, err := w.Write(event); err != nil {
						errs <- err
						return
					}
				}
			}))
			p := dialSite(t, s)
			_, err := io.WriteString(p, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			w.becomes(t, 1)
			require.ErrorIs(t, receive(t, errs), os.ErrDeadlineExceeded)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

func TestS3WriteTimeoutLifted(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			w := newWeb(t, 1)
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, r *http.Request) {
				rc := http.NewResponseController(w)
				if r.URL.Path == "/lifted" && rc.SetWriteDeadline(time.Time{}) != nil {
					return
				}
				ticks := time.NewTicker(80 * time.Millisecond)
				defer ticks.Stop()
				for i := range 10 {
					<-ticks.C
					_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
					if rc.Flush() != nil {
						return
					}
				}
			}), func(srv *http.Server) { srv.WriteTimeout = 400 * time.Millisecond })

			_, body := s.get(t, "/lifted")
			require.Equal(t, 10, strings.Count(body, "data: "))
			w.becomes(t, 0)

			res, err := s.client.Get(s.URL + "/cut")
			if err == nil {
				_, err = io.ReadAll(res.Body)
				require.NoError(t, res.Body.Close())
			}
			require.Error(t, err, "the timeout works without that")
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

func TestS4GoneClientNotNoticed(t *testing.T) {
	w := newWebOf(t, inflight.Config{LongHeld: time.Nanosecond})
	leave, alive := make(chan struct{}), make(chan error, 1)
	s := newSite(t, "h1", w.behind(func(_ http.ResponseWriter, r *http.Request) {
		<-leave
		alive <- r.Context().Err()
	}))
	p := dialSite(t, s)
	_, err := io.WriteString(p, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	require.NoError(t, err)
	w.becomes(t, 1)
	require.NoError(t, p.Close())

	report := w.Sweep()
	require.Len(t, report.NewlyLongHeld, 1)
	require.Equal(t, "POST /", report.NewlyLongHeld[0].Label)
	w.is(t, 1)
	close(leave)
	require.NoError(t, receive(t, alive), "net/http has not noticed")
	w.becomes(t, 0)
	w.empty(t)
}

func TestS7TimeoutHandlerOutside(t *testing.T) {
	w := newWeb(t, 1)
	leave := make(chan struct{})
	h := w.behind(func(http.ResponseWriter, *http.Request) { <-leave })
	s := newSite(t, "h1", http.TimeoutHandler(h, 20*time.Millisecond, "too slow"))
	status, body := s.get(t, "/")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "too slow", body)
	w.is(t, 1) // for the handler is still at work
	close(leave)
	w.becomes(t, 0)
	w.empty(t)
}

func TestS16HTTP2(t *testing.T) {
	for _, protocol := range []string{"h2", "h2c"} {
		t.Run(protocol, func(t *testing.T) {
			const streams = 10
			w := newWeb(t, streams)
			leave, hijack := make(chan struct{}), make(chan error, streams)
			var conns sync.Map
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, r *http.Request) {
				conns.Store(r.RemoteAddr, true)
				if w != r.Context().Value(writerKey{}) {
					hijack <- errors.New("another ResponseWriter")
					return
				}
				_, _, err := http.NewResponseController(w).Hijack()
				hijack <- err
				_ = http.NewResponseController(w).Flush()
				<-leave
			}), rememberWriter)
			for range streams {
				res, err := s.client.Get(s.URL)
				require.NoError(t, err)
				require.Equal(t, 2, res.ProtoMajor)
				closeLater(t, res.Body)
				require.ErrorIs(t, receive(t, hijack), http.ErrNotSupported)
			}
			w.is(t, streams)
			n := 0
			conns.Range(func(any, any) bool { n++; return true })
			require.Equal(t, 1, n)
			close(leave)
			w.becomes(t, 0)
			w.empty(t)
		})
	}
}

func TestS17EarlyHints(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, w.behind(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusOK)
			}))
			var early []int
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { early = append(early, code); return nil },
			})
			req := newRequest(ctx, t, s.URL)
			res, err := s.client.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Equal(t, []int{http.StatusEarlyHints}, early)
			w.becomes(t, 0)
		})
	}
}
