//go:build unix

package redistest

// An Option says how a Server is to be.
type Option func(*config)

type config struct {
	args     []string
	identity *identity // nil: without TLS
	master   *Server   // nil: a master itself
}

// Args are further arguments of the program, which are directives of redis.conf:
//
//	redistest.Args("--maxmemory", "4mb")
//	redistest.Args("--requirepass", "secret")
//	redistest.Args("--appendonly", "yes")
//	redistest.Args("--user", "app", "on", ">secret", "~{inflight:*", "+@all", "-config")
//
// Clients of the server then need what they would need elsewhere, such as the password. The methods of the Server do not.
func Args(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// ReplicaOf makes the server a replica of another, whose data it has when Start returns, and which can only be read from
// until it is told otherwise: Exec("REPLICAOF", "NO", "ONE"). If the master speaks TLS, give both the same option TLS.
func ReplicaOf(master *Server) Option {
	return func(c *config) { c.master = master }
}
