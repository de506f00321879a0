package inflight_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who imports the package gets the standard library and nothing else.
func TestDependsOnStandardLibraryOnly(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	foreign, err := list.Output()
	require.NoError(t, err)
	require.Equal(t, []string{"github.com/inflight-go/inflight"}, strings.Fields(string(foreign)))
}
