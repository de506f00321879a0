package analyzer

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"
)

// reveals notes that what says whether there is a slot goes where it is not followed: to a field, to a function that may
// end the test, to a variable that is not an error.
func (w *walk) reveals(n ast.Node, s *state) {
	switch n := n.(type) {
	case ast.Expr: // see assume
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); w.tells(n, s) && (!ok || !onlyReads(typeutil.Callee(w.TypesInfo, call))) {
			s.doubt()
		}
	case *ast.AssignStmt, *ast.ValueSpec:
		lhs, rhs := sides(n)
		for i, l := range lhs {
			if len(rhs) == 1 {
				i = 0
			}
			if i < len(rhs) && w.tells(rhs[i], s) && !w.isFollowed(l, rhs[i], s) {
				s.doubt()
			}
		}
	default:
		if w.tells(n, s) {
			s.doubt()
		}
	}
}

// isFollowed reports whether it is known what l means once e, which tells whether there is a slot, is assigned to it.
func (w *walk) isFollowed(l, e ast.Expr, s *state) bool {
	if id, ok := l.(*ast.Ident); ok && id.Name == "_" {
		return true
	}
	if a, ok := e.(*ast.TypeAssertExpr); ok && a.Type == nil { // of a type switch
		return true
	}
	v := w.variable(l)
	switch {
	case v == nil || !w.f.owns(v):
		return false
	case isError(v.Type()):
		return true
	}
	return isBool(v.Type()) && w.meaningOf(e, v.Type(), s) != nothing && !w.contains(e, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		return ok && !w.answers(call) && w.tells(call, s)
	})
}

// answers reports whether both outcomes of a call that asks about an error are understood.
func (w *walk) answers(call *ast.CallExpr) bool {
	fn := typeutil.Callee(w.TypesInfo, call)
	if fn == nil {
		return false
	}
	switch pathOf(fn) {
	case "errors", testifyAssert, testifyRequire:
		return true
	}
	return false
}

// tells reports whether a variable that says whether there is a slot is part of n.
func (w *walk) tells(n ast.Node, s *state) bool {
	return w.contains(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return false
		}
		v, _ := w.TypesInfo.ObjectOf(id).(*types.Var)
		if v == nil {
			return false
		}
		m := s.meaning(v)
		return m == failure || m == ifTrue || m == ifFalse
	})
}

// isTold reports whether a variable is part of e to which the error goes on some path, as to errs by
// errs = append(errs, err). On the other paths the variable says that there is a slot.
func (w *walk) isTold(e ast.Expr) bool {
	if w.told == nil {
		w.told = make(map[*types.Var]bool)
		for cur := range w.f.cursor.Preorder((*ast.AssignStmt)(nil)) {
			lhs, rhs := sides(cur.Node())
			for i, l := range lhs {
				v := w.variable(rootOf(l))
				if v != nil && len(lhs) == len(rhs) && !isError(v.Type()) && w.containsAny(rhs[i], w.t.others) {
					w.told[v] = true
				}
			}
		}
	}
	return w.contains(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && w.told[w.variable(id)]
	})
}

func (w *walk) containsAny(e ast.Expr, vars []*types.Var) bool {
	return w.contains(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && slices.Contains(vars, w.variable(id))
	})
}
