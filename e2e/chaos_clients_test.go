package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inflight-go/inflight"
)

// leave closes a connection of TCP, by RST or as usual.
func leave(conn net.Conn, reset bool) {
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// A rawClient writes HTTP/1.1 by hand, a connection for each request.
type rawClient struct {
	addr  string
	storm *storm
}

func newRawClient(s *httptest.Server, storm *storm) *rawClient {
	return &rawClient{s.Listener.Addr().String(), storm}
}

func (c *rawClient) send(p *plan) {
	addr, err := net.ResolveTCPAddr("tcp", c.addr)
	if err != nil {
		c.storm.fault(err.Error())
		return
	}
	conn, err := net.DialTCP("tcp", nil, addr)
	if err != nil {
		c.storm.fault(err.Error())
		return
	}
	defer leave(conn, p.reset)
	_ = conn.SetDeadline(time.Now().Add(soon))
	if err := c.talk(conn, p); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		c.storm.fault(fmt.Sprintf("stuck: %+v", p))
	}
}

func (c *rawClient) talk(conn *net.TCPConn, p *plan) error {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: e2e\r\nX-Org: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		p.mode, p.org, len(p.body))
	half := len(p.body) / 2
	sent := map[string]string{
		"before headers": "", "in headers": head[:len(head)/2], "in body": head + p.body[:half], "half-close in body": head + p.body[:half],
	}
	text, partial := sent[p.point]
	if !partial {
		text = head + p.body
	}
	if _, err := io.WriteString(conn, text); err != nil && !partial {
		return err // an early answer may have come with a reset: a body that nobody reads
	}
	if strings.HasPrefix(p.point, "half-close") {
		_ = conn.CloseWrite()
	} else if partial || p.point == "after body" {
		p.wait()
		return nil
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return c.storm.read(p, resp)
}

// read reads a response as far as planned.
func (s *storm) read(p *plan, resp *http.Response) error {
	switch p.point {
	case "after head":
		p.wait()
		return nil
	case "in response":
		_, err := io.ReadFull(resp.Body, make([]byte, p.read))
		p.wait()
		return err
	}
	body, err := io.ReadAll(resp.Body)
	s.judge(p, resp.StatusCode, body, err)
	return err
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A streamClient has many requests at once on few HTTP/2 connections, over a transport that limits too.
type streamClient struct {
	addr  string
	roots *tls.Config
	url   string
	http  *http.Client
	storm *storm

	mu    sync.Mutex
	conns []*tls.Conn // that requests are on, or were
}

func newStreamClient(t *testing.T, s *httptest.Server, storm *storm) *streamClient {
	t.Helper()
	c := &streamClient{
		addr: s.Listener.Addr().String(), roots: rootsOf(s), url: s.URL, storm: storm,
	}
	base := transportOf(s).Clone()
	base.DialTLSContext = c.dial
	t.Cleanup(base.CloseIdleConnections)
	reg := newRegistry(t, inflight.Limits{Key: inflight.Unlimited})
	c.http = &http.Client{Transport: inflight.NewTransport(base, reg, inflight.TransportConfig{Key: chaosKey})}
	return c
}

// connect opens a connection.
func (c *streamClient) connect(ctx context.Context) (*tls.Conn, error) {
	cfg := c.roots.Clone()
	cfg.NextProtos, cfg.ServerName = []string{"h2"}, "127.0.0.1"
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(tcp, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return conn, nil
}

// dial opens a connection for requests.
func (c *streamClient) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return conn, nil
}

// takeConn takes the latest connection, nil if it was taken already.
func (c *streamClient) takeConn() *tls.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) == 0 {
		return nil
	}
	conn := c.conns[len(c.conns)-1]
	c.conns = nil
	return conn
}

func (c *streamClient) send(p *plan) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	switch p.point {
	case "before headers", "in headers":
		c.stutter(ctx, p)
		return
	case "half-close":
		// The whole connection, with all the requests on it.
		defer func() {
			conn := c.takeConn()
			switch {
			case conn == nil:
			case p.reset:
				leave(conn.NetConn(), true)
			default:
				_ = conn.CloseWrite()
			}
		}()
	}
	if err := c.talk(ctx, cancel, p); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		c.storm.fault(fmt.Sprintf("stuck: %+v: %v", p, err))
	}
}

// stutter opens a connection and says nothing, or half of the preface.
func (c *streamClient) stutter(ctx context.Context, p *plan) {
	conn, err := c.connect(ctx)
	if err != nil {
		c.storm.fault(err.Error())
		return
	}
	defer leave(conn.NetConn(), p.reset)
	if p.point == "in headers" {
		_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM")
	}
	p.wait()
}

func (c *streamClient) talk(ctx context.Context, cancel context.CancelFunc, p *plan) error {
	half := strings.NewReader(p.body[:len(p.body)/2])
	var body io.Reader = strings.NewReader(p.body)
	switch p.point {
	case "in body": // RST_STREAM
		body = io.MultiReader(half, after(func() error { p.wait(); cancel(); return ctx.Err() }))
	case "half-close in body": // the body ends in an error, the request does not
		body = io.MultiReader(half, after(func() error { p.wait(); return io.ErrUnexpectedEOF }))
	case "after body":
		body = io.MultiReader(body, after(func() error { go func() { p.wait(); cancel() }(); return io.EOF }))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+p.mode, body)
	if err != nil {
		return err
	}
	req.Header.Set("X-Org", p.org)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if p.reset { // by cancel, before the close
		defer cancel()
	}
	return c.storm.read(p, resp)
}

// after is a reader of nothing that does something when it is reached.
type after func() error

func (f after) Read([]byte) (int, error) { return 0, f() }
