package analyzer

import (
	"go/ast"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// stops reports whether a call ends the goroutine behind an interface, where the control-flow graph cannot know it, or the
// test has failed, so that a slot less is of no matter.
func (w *walk) stops(call *ast.CallExpr) bool {
	fn := typeutil.Callee(w.TypesInfo, call)
	if fn == nil || fn.Pkg() == nil {
		return false
	}
	switch fn.Pkg().Path() {
	case "testing":
		return slices.Contains([]string{"Error", "Errorf", "Fail", "Fatal", "Fatalf", "FailNow", "Skip", "Skipf", "SkipNow"}, fn.Name())
	case testifyRequire:
		return slices.Contains([]string{"Fail", "Failf", "FailNow", "FailNowf"}, fn.Name())
	}
	return false
}

// refutedByCall reports whether there is no slot if a call returns truth. A question about an error is taken to be
// answered with yes only if there is one, but for those that ask for none.
func (w *walk) refutedByCall(call *ast.CallExpr, truth bool, s *state) bool {
	name := ""
	if fn := typeutil.Callee(w.TypesInfo, call); fn != nil {
		name = strings.TrimSuffix(fn.Name(), "f")
	}
	for _, arg := range call.Args {
		m := nothing
		if v := w.variable(w.plain(arg)); v != nil {
			m = s.meaning(v)
		}
		switch name {
		case "True", "False":
			if isBool(w.TypesInfo.TypeOf(arg)) && len(w.assume(*s, arg, truth == (name == "True"))) == 0 {
				return true
			}
		case "NoError", "NoErr", "NilError", "Nil":
			if m == failure && !truth || m == theSlot && truth {
				return true
			}
		case "NotNil":
			if m == failure && truth || m == theSlot && !truth {
				return true
			}
		default:
			if m == failure && truth {
				return true
			}
		}
	}
	return false
}

// denied reports whether a call ends the test unless there is no slot.
func (w *walk) denied(call *ast.CallExpr, s *state) bool {
	fn := typeutil.Callee(w.TypesInfo, call)
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != testifyRequire && fn.Pkg().Path() != testifyAssert {
		return false
	}
	return w.refutedByCall(call, true, s)
}
