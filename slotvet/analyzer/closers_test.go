package analyzer_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/inflight-go/inflight/slotvet/analyzer"
)

var closers = flag.String("closers", "net/http", "the packages that TestClosers looks at, with all that they import")

// TestClosers follows what is opened in code that knows nothing of slots, in place of slots. It asks no more than that the
// analyzer gets through, and that it finds functions that hand over what they open. What it reports is logged.
func TestClosers(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads much of the standard library from source")
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadAllSyntax}, *closers)
	require.NoError(t, err)
	graph, err := checker.Analyze([]*analysis.Analyzer{analyzer.ForClosers()}, loaded, nil)
	require.NoError(t, err)
	facts := 0
	for action := range graph.All() {
		require.NoError(t, action.Err, action)
		if action.Analyzer.Name == "slotvet" {
			facts += len(action.AllObjectFacts())
		}
		for _, d := range action.Diagnostics {
			t.Log(action.Package.Fset.Position(d.Pos), d.Message)
		}
	}
	require.NotZero(t, facts)
}
