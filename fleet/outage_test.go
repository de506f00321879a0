//go:build unix

package fleet_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

// An outage is a way in which a server fails, and what ends that.
type outage struct {
	begin, end func(*redistest.Server, *redistest.Proxy)
	options    func(*redis.Options) // nil: as New recommends
}

const appPassword = "password"

func outages() map[string]outage {
	return map[string]outage{
		"killed": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
			end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() },
		},
		"killed, and back with nothing": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
			end:   func(s *redistest.Server, _ *redistest.Proxy) { s.RestartEmpty() },
		},
		"halted": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Stop() },
			end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Continue() },
		},
		"halted, and a client with the defaults": {
			begin:   func(s *redistest.Server, _ *redistest.Proxy) { s.Stop() },
			end:     func(s *redistest.Server, _ *redistest.Proxy) { s.Continue() },
			options: func(*redis.Options) {},
		},
		"silent": {
			begin: func(_ *redistest.Server, p *redistest.Proxy) { p.Blackhole() },
			end:   func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() },
		},
		"cut off": {
			begin: func(_ *redistest.Server, p *redistest.Proxy) { p.Cut() },
			end:   func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() },
		},
		"cut off, and a client with the defaults": {
			begin:   func(_ *redistest.Server, p *redistest.Proxy) { p.Cut() },
			end:     func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() },
			options: func(*redis.Options) {},
		},
		"too far away": {
			begin: func(_ *redistest.Server, p *redistest.Proxy) { p.Delay(200 * time.Millisecond) },
			end:   func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() },
		},
		"read-only": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Exec("REPLICAOF", "127.0.0.1", "1") },
			end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Exec("REPLICAOF", "NO", "ONE") },
		},
		"without memory": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Exec("CONFIG", "SET", "maxmemory", "1") },
			end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Exec("CONFIG", "SET", "maxmemory", "0") },
		},
		"without the right": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Exec("ACL", "SETUSER", "app", "-@all") },
			end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Exec("ACL", "SETUSER", "app", "+@all") },
		},
		"with another password": {
			begin: func(s *redistest.Server, _ *redistest.Proxy) {
				s.Exec("ACL", "SETUSER", "app", "resetpass", ">other")
				s.Exec("CLIENT", "KILL", "USER", "app")
			},
			end: func(s *redistest.Server, _ *redistest.Proxy) {
				s.Exec("ACL", "SETUSER", "app", "resetpass", ">"+appPassword)
			},
		},
	}
}

// Whatever ails the server, a process goes on with what it is granted, then with its share, and as before when the server
// is well again. Who holds something is not disturbed by any of that.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, o := range outages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Args("--appendonly", "yes", "--user", "app", "on", ">"+appPassword, "~*", "&*", "+@all"))
			proxy := redistest.StartProxy(t, server)
			client := func() *redis.Client {
				return proxy.Client(func(c *redis.Options) {
					c.Username, c.Password = "app", appPassword
					if o.options == nil {
						quick(c)
					}
				})
			}
			a, b := peerOf(t, client(), 10, fleet.Config{}), peerOf(t, client(), 10, fleet.Config{})
			a.get(acme, 10).Release() // the server has learned, and it is granted them all
			b.recovered()
			held := []*inflight.Slot{a.get(acme, 1), a.get(acme, 1)}

			o.begin(server, proxy)
			held = append(held, a.get(acme, 1)) // of what is granted, or of its share
			a.fallen()
			b.fallen()
			held = append(held, a.fill(acme)...)
			require.Len(t, held, 5)
			waiter := a.waiter(acme)
			elsewhere := b.fill(acme)
			require.Len(t, elsewhere, 5)
			held[0].Release()
			require.NoError(t, <-waiter, "there was room")
			b.refuses(acme)

			o.end(server, proxy)
			a.recovered()
			b.recovered()
			a.goOn(acme, held[1:])
			b.goOn(acme, elsewhere)
			all := b.get(acme, 10)
			a.refuses(acme)
			all.Release()
		})
	}
}
