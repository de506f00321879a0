package inflight_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hijackable makes a ResponseWriter that can hijack, which gives conn, buf and err.
type hijackable struct {
	http.ResponseWriter

	conn net.Conn
	buf  *bufio.ReadWriter
	err  error
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.buf, h.err }

// upgradeRequest is a request that asks to upgrade, as hard to recognize as is allowed.
func upgradeRequest() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Add("Connection", "keep-alive")
	r.Header.Add("Connection", "close, uPGRADE ")
	r.Header.Set("Upgrade", "echo")
	return r
}

const (
	handshake = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
)

// upgrade is what a handler does to switch protocols, on any error it panics.
func upgrade(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if _, err = io.WriteString(conn, switching); err != nil {
		panic(err)
	}
	return conn, buf
}

// A peer is the client's end of an upgraded connection.
type peer struct {
	net.Conn

	in *bufio.Reader
	t  *testing.T
}

// dialUpgrade sends the handshake to the site and asserts that it switches.
func dialUpgrade(t *testing.T, s *site) *peer {
	t.Helper()
	p := dialSite(t, s)
	_, err := io.WriteString(p, handshake)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, p.response().StatusCode)
	return p
}

// dialSite connects to the site, over TLS if it speaks that.
func dialSite(t *testing.T, s *site) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	if s.TLS != nil {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return &peer{conn, bufio.NewReader(conn), t}
}

func (p *peer) response() *http.Response {
	p.t.Helper()
	res, err := http.ReadResponse(p.in, nil)
	require.NoError(p.t, err)
	return res
}

// echoes asserts that what is sent comes back.
func (p *peer) echoes(text string) {
	p.t.Helper()
	_, err := io.WriteString(p, text)
	require.NoError(p.t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(p.in, got)
	require.NoError(p.t, err)
	require.Equal(p.t, text, string(got))
}

// hangsUp asserts that the other end closes the connection.
func (p *peer) hangsUp() {
	p.t.Helper()
	_, err := p.in.ReadByte()
	require.Error(p.t, err)
	require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded, "still open")
}

type writerKey struct{}

// rememberWriter lets handlers see, in their context, the ResponseWriter that the server gave.
func rememberWriter(s *http.Server) {
	h := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writerKey{}, w)))
	})
}
