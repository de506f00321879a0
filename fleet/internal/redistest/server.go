//go:build unix

// Package redistest gives a test a Redis or Valkey of its own, a real one, and the faults of a real one: it can halt, die,
// come back with or without its data, refuse to write, and be far away.
//
//	server := redistest.Start(t)
//	client := server.Client()
//	...
//	server.Kill()
//	server.Restart()
//
// Each server has a free port of the loopback interface and a directory of its own, and ends with the test. Functions and
// methods that take or know a test may end it, so they are for the goroutine of the test.
package redistest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/fleettest/process"
)

const (
	soon = 15 * time.Second     // for what happens at once, on a slow machine
	tick = 5 * time.Millisecond // between looks
)

// A Server is one server, on one address for as long as the test lasts, though not always there.
type Server struct {
	tb      testing.TB
	program string
	dir     string
	port    int
	cfg     config
	admin   *redis.Client

	proc *process.Process
}

// Start starts a server, without persistence unless the options say otherwise. The test is skipped where no server is
// installed. With E2E_SKIPS=fail, as in .ci/run, that is a failure.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s := &Server{tb: tb, program: installed(tb), dir: tb.TempDir()}
	for _, opt := range opts {
		opt(&s.cfg)
	}
	for {
		s.port = freePort(tb)
		err := s.start()
		if err == nil {
			break
		}
		// Another process may have taken the port since it was seen to be free.
		require.Contains(tb, s.proc.Output(), "Address already in use", "%v", err)
	}
	if s.cfg.master != nil {
		s.await("the first copy of the master's data", func(ctx context.Context) bool {
			return s.info(ctx, "replication")["master_link_status"] == "up"
		})
	}
	return s
}

// installed returns the path of a server.
func installed(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		path, err = exec.LookPath("valkey-server")
	}
	switch {
	case err == nil:
	case os.Getenv("E2E_SKIPS") == "fail":
		require.NoError(tb, err)
	default:
		tb.Skip("redis-server is not installed: apt-get install redis-server")
	}
	return path
}

// Addr is the address of the server, as host and port. It stays the same when the server is restarted.
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

// Stop halts the server by SIGSTOP: the system still accepts connections for it, and nobody answers.
func (s *Server) Stop() {
	s.tb.Helper()
	require.NoError(s.tb, s.proc.Stop())
}

// Continue ends a Stop. What was sent meanwhile is executed now.
func (s *Server) Continue() {
	s.tb.Helper()
	require.NoError(s.tb, s.proc.Continue())
}

// Kill ends the server by SIGKILL. Connections break, and new ones are refused.
func (s *Server) Kill() { s.proc.Kill() }

// Restart kills the server if it still runs, and starts it again with the data that it has persisted: none but for the
// option --appendonly yes, or what a SAVE has written.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	require.NoError(s.tb, s.start())
}

// RestartEmpty is Restart with all data lost. A node of a cluster still knows its place there.
func (s *Server) RestartEmpty() {
	s.tb.Helper()
	s.Kill()
	files, err := os.ReadDir(s.dir)
	require.NoError(s.tb, err)
	for _, f := range files {
		if f.Name() != nodesFile {
			require.NoError(s.tb, os.RemoveAll(filepath.Join(s.dir, f.Name())))
		}
	}
	require.NoError(s.tb, s.start())
}

// start starts the program and waits until it answers.
func (s *Server) start() error {
	proc, err := process.Start(s.tb, exec.Command(s.program, s.args()...)) //nolint:gosec,noctx // ends with the test
	if err != nil {
		return err
	}
	s.tb.Cleanup(func() {
		if s.tb.Failed() {
			s.tb.Logf("%s at %s:\n%s", s.program, s.Addr(), proc.Output())
		}
	})
	s.proc = proc
	if s.admin != nil {
		_ = s.admin.Close() // its connections are to the one that is gone
	} else {
		s.tb.Cleanup(func() { _ = s.admin.Close() })
	}
	s.admin = redis.NewClient(s.adminOptions())
	return s.poll("an answer", func(ctx context.Context) bool {
		if !s.listens(ctx) {
			return false
		}
		info := s.info(ctx, "server", "persistence")
		return info["process_id"] == strconv.Itoa(proc.PID()) && info["loading"] == "0"
	})
}

// listens says whether somebody listens on the port. The client would log that nobody does.
func (s *Server) listens(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	return err == nil && conn.Close() == nil
}

// args are the arguments of the program. What the test says comes last, so it may overrule the rest.
func (s *Server) args() []string {
	port := strconv.Itoa(s.port)
	args := []string{
		"--bind", loopback, "--dir", s.dir, "--daemonize", "no", "--logfile", "",
		"--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", // of 5 seconds, in which other replicas might come
		"--user", adminName, "on", ">" + adminPassword, "~*", "&*", "+@all",
	}
	if id := s.cfg.identity; id == nil {
		args = append(args, "--port", port)
	} else {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-cert-file", id.certFile, "--tls-key-file", id.keyFile,
			"--tls-ca-cert-file", id.rootFile, "--tls-auth-clients", "no", "--tls-replication", "yes", "--tls-cluster", "yes")
	}
	if m := s.cfg.master; m != nil {
		args = append(args, "--replicaof", loopback, strconv.Itoa(m.port), "--masteruser", adminName, "--masterauth", adminPassword)
	}
	return append(args, s.cfg.args...)
}

// await waits for what the server is about to do.
func (s *Server) await(what string, done func(context.Context) bool) {
	s.tb.Helper()
	require.NoError(s.tb, s.poll(what, done))
}

func (s *Server) poll(what string, done func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	next := time.NewTicker(tick)
	defer next.Stop()
	for !done(ctx) {
		select {
		case <-s.proc.Ended():
			return fmt.Errorf("redistest: the server ended, instead of %s: %w\n%s", what, s.proc.Wait(), s.proc.Output())
		case <-ctx.Done():
			return fmt.Errorf("redistest: no sign of %s: %w\n%s", what, ctx.Err(), s.proc.Output())
		case <-next.C:
		}
	}
	return nil
}

// info returns sections of INFO, or nothing if there is no answer.
func (s *Server) info(ctx context.Context, sections ...string) map[string]string {
	all := map[string]string{}
	for _, section := range sections { // one at a time, for Redis 6.2
		text, err := s.admin.Info(ctx, section).Result()
		if err != nil {
			return nil
		}
		maps.Copy(all, fields(text))
	}
	return all
}

// fields reads lines of a name, a colon and a value.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
