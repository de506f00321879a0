//go:build unix

package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// The server's own user of the tests, who may do everything, whatever the rights and passwords of others are.
const (
	adminName     = "redistest"
	adminPassword = "redistest"
)

// Client returns a client of the server, which is closed when the test ends. Other than the address and TLS, its options
// are the defaults of go-redis, which opts may change.
func (s *Server) Client(opts ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.Addr(), TLSConfig: s.TLSConfig()}
	for _, opt := range opts {
		opt(o)
	}
	c := redis.NewClient(o)
	s.tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// TLSConfig is what a client needs to trust the server, nil without the option TLS.
func (s *Server) TLSConfig() *tls.Config {
	if s.cfg.identity == nil {
		return nil
	}
	return &tls.Config{RootCAs: s.cfg.identity.roots, ServerName: loopback, MinVersion: tls.VersionTLS12}
}

// Flush deletes all data, by FLUSHALL.
func (s *Server) Flush() {
	s.tb.Helper()
	s.Exec("FLUSHALL", "SYNC")
}

// ScriptFlush makes the server forget all scripts.
func (s *Server) ScriptFlush() {
	s.tb.Helper()
	s.Exec("SCRIPT", "FLUSH", "SYNC")
}

// Exec executes a command, as a user who may do everything, and returns the answer; nil is also an answer. An error fails
// the test.
func (s *Server) Exec(args ...any) any {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	answer, err := s.admin.Do(ctx, args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	require.NoError(s.tb, err, "%v", args)
	return answer
}

// CallsOf returns how often the server has executed these commands since it was last started: the sum over all clients,
// with those that failed, such as an EVALSHA of a script that is not known. Names are as in INFO commandstats, such as
// evalsha or config|get.
func (s *Server) CallsOf(commands ...string) int {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	info := s.info(ctx, "commandstats")
	require.NotNil(s.tb, info, "the server does not answer")
	sum := 0
	for _, command := range commands {
		stat, called := info["cmdstat_"+strings.ToLower(command)]
		if !called {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
		n, err := strconv.Atoi(calls)
		require.NoError(s.tb, err, stat)
		sum += n
	}
	return sum
}

func (s *Server) adminOptions() *redis.Options {
	return &redis.Options{
		Addr:                     s.Addr(),
		TLSConfig:                s.TLSConfig(),
		Username:                 adminName,
		Password:                 adminPassword,
		ContextTimeoutEnabled:    true,
		ReadTimeout:              soon,
		MaxRetries:               -1, // what is executed once is counted once
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
