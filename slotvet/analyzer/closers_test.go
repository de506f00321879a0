package analyzer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/inflight-go/inflight/slotvet/analyzer"
)

// TestClosers follows all that is opened in the standard library, some hundred thousand lines with every construct of
// the language, and asks no more than that the analyzer comes through.
func TestClosers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute to load the standard library from source")
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadAllSyntax}, "std")
	require.NoError(t, err)
	graph, err := checker.Analyze([]*analysis.Analyzer{analyzer.ForClosers()}, loaded, nil)
	require.NoError(t, err)
	found := 0
	for _, action := range graph.Roots {
		require.NoError(t, action.Err, action)
		found += len(action.Diagnostics)
		for _, d := range action.Diagnostics {
			t.Log(action.Package.Fset.Position(d.Pos), d.Message)
		}
	}
	require.NotZero(t, found)
}
