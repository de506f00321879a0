package analyzer_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/inflight-go/inflight/slotvet/analyzer"
)

// TestSnippets has a function for each way to lose a slot, and one for each way not to.
func TestSnippets(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer.Analyzer, "./wrap", "./leaks", "./silent")
}

func TestFixes(t *testing.T) {
	analysistest.RunWithSuggestedFixes(t, analysistest.TestData(), analyzer.Analyzer, "./fix")
}
