//go:build unix

package redistest

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

const loopback = "127.0.0.1"

// Ports are below those that the system gives to outgoing connections, from 32768 on Linux. So no connection takes the port
// of a server, or of a proxy, while that is away and will come back.
const (
	firstPort = 10000
	ports     = 10000
	busOffset = 10000 // from the port of a node of a cluster to that on which nodes talk to each other
)

// freePort returns a port that is free, and so is the one for the cluster bus.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(ports) //nolint:gosec // nobody must guess it, only not take the same one
		if isFree(tb, port) && isFree(tb, port+busOffset) {
			return port
		}
	}
	require.FailNow(tb, "no port is free")
	return 0
}

func isFree(tb testing.TB, port int) bool {
	tb.Helper()
	l, err := listen(port)
	if err != nil {
		return false
	}
	require.NoError(tb, l.Close())
	return true
}

func listen(port int) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
}
