//go:build unix

package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A Proxy is the network between clients and a Server: slow, cut, or silent. It copies bytes and does not know what they
// mean, so TLS passes too. The faults may come from any goroutine, but for Blackhole and Heal, which listen again after Cut.
type Proxy struct {
	tb      testing.TB
	server  *Server
	port    int
	running sync.WaitGroup

	mu       sync.Mutex
	delay    time.Duration
	passing  chan struct{} // closed: bytes pass; else when it will be
	listener net.Listener  // nil: cut
	cut      chan struct{} // will be closed by the next Cut
	conns    map[net.Conn]struct{}
}

// StartProxy starts a proxy to a server. At first it only passes on what it gets. It ends with the test.
func StartProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, server: s, port: freePort(tb), passing: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.Heal()
	tb.Cleanup(func() {
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr is the address of the proxy, as host and port. It stays the same whatever happens.
func (p *Proxy) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(p.port)) }

// Client is a client as of Server.Client, that reaches the server by the proxy.
func (p *Proxy) Client(opts ...func(*redis.Options)) *redis.Client {
	return p.server.Client(append([]func(*redis.Options){func(o *redis.Options) { o.Addr = p.Addr() }}, opts...)...)
}

// Delay lets all that is read from now on take so long on its way, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut breaks all connections, with what is on its way, and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return
	}
	_ = p.listener.Close()
	p.listener = nil
	close(p.cut)
	for c := range p.conns {
		_ = c.Close()
	}
}

// Blackhole keeps all that is sent from now on, as a network does that loses every packet and whose ends try again:
// connections stay open, new ones are accepted, and nothing arrives. It arrives after Heal, though the client may long
// have given up. After Cut it never arrives.
func (p *Proxy) Blackhole() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.passing) {
		p.passing = make(chan struct{})
	}
	p.listenLocked()
}

// Heal ends all faults, delays too.
func (p *Proxy) Heal() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = 0
	if !isClosed(p.passing) {
		close(p.passing)
	}
	p.listenLocked()
}

func (p *Proxy) listenLocked() {
	p.tb.Helper()
	if p.listener != nil {
		return
	}
	l, err := listen(p.port)
	require.NoError(p.tb, err)
	p.listener, p.cut = l, make(chan struct{})
	cut := p.cut
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // it was closed by Cut
			}
			p.running.Go(func() { p.link(client, cut) })
		}
	})
}

// link copies both ways between a client and the server, until both have said all they had to, or until the cut.
func (p *Proxy) link(client net.Conn, cut <-chan struct{}) {
	defer p.forget(client)
	if !p.keep(client, cut) || !p.hold(time.Now(), cut) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.server.Addr())
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.keep(server, cut) {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.carry(client, server, cut) })
	ways.Go(func() { p.carry(server, client, cut) })
	ways.Wait()
}

// carry copies one way. What comes while it waits is read as one piece afterwards, and is late by up to the delay: a client
// that sends one call at a time does not notice.
func (p *Proxy) carry(from, to net.Conn, cut <-chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !p.hold(time.Now(), cut) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close() // so the sender learns of it
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // the other way may still have something to carry
			}
			return
		default:
			_ = to.Close()
			return
		}
	}
}

// hold waits until what was read at some time may arrive, and is false if it never will.
func (p *Proxy) hold(read time.Time, cut <-chan struct{}) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if rest := time.Until(read.Add(delay)); rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-cut:
			return false
		}
	}
	p.mu.Lock()
	passing := p.passing
	p.mu.Unlock()
	select {
	case <-passing:
		return !isClosed(cut)
	case <-cut:
		return false
	}
}

// keep notes a connection for the next Cut, and is false if that has been.
func (p *Proxy) keep(c net.Conn, cut <-chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return !isClosed(cut)
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
