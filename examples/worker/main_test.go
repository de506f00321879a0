package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In fake time the run is the same each time.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		require.Equal(t, strings.TrimLeft(`
job  customer  GiB  held back  waited  outcome
1    acme      3    0s         0s      ran, with slot 1
2    zebra     2    0s         350ms   ran, with slot 2
3    nadir     1    0s         300ms   ran, with slot 3
4    acme      3    250ms      500ms   gave up
5    acme      1    150ms      300ms   ran, with slot 4
6    nadir     4    250ms      0s      refused: above the key limit of 3
7    zebra     1    0s         0s      ran, with slot 5
8    nadir     3    0s         150ms   the shift was over

5 of 8 jobs ran, with at most 4 of 4 GiB in use
`, "\n"), out.String())
	})
}
