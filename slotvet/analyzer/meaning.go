package analyzer

import (
	"go/ast"
	"go/types"
)

// changes forgets what was decided by variables that n assigns to.
func (w *walk) changes(n ast.Node, s *state) {
	lhs, _ := sides(n)
	if n, ok := n.(*ast.IncDecStmt); ok {
		lhs = []ast.Expr{n.X}
	}
	for _, l := range lhs {
		v := w.variable(rootOf(l))
		if v == nil {
			continue
		}
		s.forget(v)
		if s.meaning(v) == fixed {
			s.set(v, nothing)
		}
	}
}

// rootOf returns what an expression such as x.f[i] begins with.
func rootOf(e ast.Expr) ast.Expr {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return x
		}
	}
}

// assign gives the variables that n assigns to their new meanings. The path ends if no variable is left that holds the
// slot.
func (w *walk) assign(n ast.Node, s *state) bool {
	before := *s
	w.changes(n, s)
	lhs, rhs := sides(n)
	for i, l := range lhs {
		v := w.variable(l)
		if v == nil {
			continue
		}
		m := nothing
		switch {
		case len(rhs) == len(lhs):
			m = w.meaningOf(rhs[i], v.Type(), &before)
		case len(rhs) == 1 && i == 0: // v, ok := x.(T)
			m = w.meaningOf(rhs[0], v.Type(), &before)
		case len(rhs) == 1:
			m = w.derived(rhs[0], v.Type(), &before)
		}
		s.set(v, m)
	}
	w.fix(n, s, &before)
	switch {
	case s.duty != open || w.t.slot != nil && s.handles() > 0:
		return true
	case n == w.t.stmt:
		w.end.again = w.end.again || s.grant != doubtful
		return false
	case before.handles() > 0:
		if s.grant != doubtful {
			w.end.over = n.Pos()
		}
		return false
	}
	return true
}

// meaningOf tells what a variable of type t means that is set to e.
func (w *walk) meaningOf(e ast.Expr, t types.Type, s *state) meaning {
	if v := w.variable(w.plain(e)); v != nil && s.meaning(v) != nothing && s.meaning(v) != fixed {
		return s.meaning(v)
	}
	if isBool(t) {
		switch {
		case len(w.assume(*s, e, true)) == 0:
			return ifTrue
		case len(w.assume(*s, e, false)) == 0:
			return ifFalse
		}
		return nothing
	}
	return w.derived(e, t, s)
}

// derived tells what a variable of type t means that is computed by e: from the error comes another error or a yes, from a
// context something that carries it.
func (w *walk) derived(e ast.Expr, t types.Type, s *state) meaning {
	v := w.variable(w.plain(e))
	switch {
	case v != nil && s.meaning(v) == theSlot && isBool(t): // _, ok := slot.(T)
		return ifFalse
	case w.mentions(e, failure, s) && isError(t) && s.grant != certain: // or else it is that of something else
		return failure
	case w.mentions(e, failure, s) && isBool(t):
		return ifTrue
	case w.carries(e, s) && canCarry(t):
		return carrier
	}
	return nothing
}
