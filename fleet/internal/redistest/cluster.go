//go:build unix

package redistest

import (
	"context"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	slots     = 16384
	nodesFile = "nodes.conf" // what a node knows of its cluster
)

// A Cluster is a Redis Cluster of masters without replicas.
type Cluster struct {
	tb    testing.TB
	nodes []*Server
}

// StartCluster starts n servers and makes them a cluster, each with an equal share of the slots. The options are for each.
func StartCluster(tb testing.TB, n int, opts ...Option) *Cluster {
	tb.Helper()
	opts = append(opts, Args("--cluster-enabled", "yes", "--cluster-config-file", nodesFile,
		"--cluster-announce-ip", loopback, "--cluster-node-timeout", "2000"))
	c := &Cluster{tb: tb}
	for i := range n {
		node := Start(tb, opts...)
		node.Exec("CLUSTER", "SET-CONFIG-EPOCH", i+1) // each its own, or they would have to agree first
		addSlots := []any{"CLUSTER", "ADDSLOTS"}      // ADDSLOTSRANGE is not in 6.2
		for slot := i * slots / n; slot < (i+1)*slots/n; slot++ {
			addSlots = append(addSlots, slot)
		}
		node.Exec(addSlots...)
		if i > 0 {
			node.Exec("CLUSTER", "MEET", loopback, c.nodes[0].port)
		}
		c.nodes = append(c.nodes, node)
	}
	c.Await()
	return c
}

// Node returns one of the servers, from 0.
func (c *Cluster) Node(i int) *Server { return c.nodes[i] }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Await waits until all nodes know each other and serve all slots, for example after a Restart of one of them.
func (c *Cluster) Await() {
	c.tb.Helper()
	size := strconv.Itoa(len(c.nodes))
	for _, n := range c.nodes {
		n.await("a cluster that is whole", func(ctx context.Context) bool {
			info := fields(n.admin.ClusterInfo(ctx).Val())
			return info["cluster_state"] == "ok" && info["cluster_size"] == size && info["cluster_known_nodes"] == size &&
				info["cluster_slots_ok"] == strconv.Itoa(slots)
		})
	}
}

// Client returns a client of the cluster, which is closed when the test ends.
func (c *Cluster) Client(opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: c.Addrs(), TLSConfig: c.nodes[0].TLSConfig()}
	for _, opt := range opts {
		opt(o)
	}
	client := redis.NewClusterClient(o)
	c.tb.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}

// CallsOf is the sum of Server.CallsOf over the nodes.
func (c *Cluster) CallsOf(commands ...string) int {
	c.tb.Helper()
	sum := 0
	for _, n := range c.nodes {
		sum += n.CallsOf(commands...)
	}
	return sum
}
