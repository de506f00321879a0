//go:build unix

package redistest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

func TestCluster(t *testing.T) {
	for name, opts := range map[string][]redistest.Option{
		"in the clear": nil,
		"over TLS":     {redistest.TLS(t)},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 3, opts...)
			c := cluster.Client()
			for i := range 30 {
				require.NoError(t, c.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err())
			}
			for i := range 3 {
				require.Positive(t, cluster.Node(i).Exec("DBSIZE"), "node %d", i)
			}
			require.Equal(t, 30, cluster.CallsOf("set"))

			cluster.Node(1).RestartEmpty()
			cluster.Await()
			require.Zero(t, cluster.Node(1).Exec("DBSIZE"))
			for i := range 30 {
				require.NoError(t, c.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err())
			}
		})
	}
}
