package analyzer

import (
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// ForClosers returns the analyzer let loose on everything that has a method Close and is opened, dialled or the like.
// There is much more of that than of slots.
func ForClosers() *analysis.Analyzer {
	return newAnalyzer(resource{
		release: "Close",
		is: func(t types.Type) bool {
			if _, parameter := t.(*types.TypeParam); parameter {
				return false
			}
			obj, _, _ := types.LookupFieldOrMethod(t, true, nil, "Close")
			_, ok := obj.(*types.Func)
			return ok
		},
		gives: func(fn *types.Func) (handsOver, known bool) {
			opens := slices.ContainsFunc([]string{"Open", "Create", "Dial", "Listen", "Accept"}, func(s string) bool {
				return strings.HasPrefix(fn.Name(), s)
			})
			return true, opens
		},
	})
}
