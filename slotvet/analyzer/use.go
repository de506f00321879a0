package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// A use is what a piece of code does with a slot.
type use uint8

const (
	idle     use = iota // nothing that would free who took it from releasing it
	dropped             // it can no longer be reached
	returned            // it goes to the caller
	kept                // it is stored, sent, captured or passed on
	released
)

// uses tells the most that n does with the slot; if it returns it, as which result.
func (w *walk) uses(n ast.Node, s *state) (use, int) {
	cur, ok := w.f.find(n)
	if !ok {
		return idle, -1
	}
	most, result := idle, -1
	cur.Inspect([]ast.Node{(*ast.Ident)(nil), (*ast.FuncLit)(nil), (*ast.CallExpr)(nil)}, func(cur inspector.Cursor) bool {
		u, i := idle, -1
		switch n := cur.Node().(type) {
		case *ast.FuncLit:
			if w.captures(cur, s) {
				most = max(most, kept)
			}
			return false
		case *ast.CallExpr:
			switch {
			case w.takesOver(n, s) && cur.ParentEdgeKind() != edge.BinaryExpr_X:
				u = kept
			case w.isContext(n, s):
				u, w.end.shown = w.carrierUse(cur), true
			}
		case *ast.Ident:
			switch v := w.variable(n); s.meaning(v) {
			case theSlot:
				u, i = w.useOf(cur)
			case carrier:
				u = w.carrierUse(cur)
			}
		}
		if u > most {
			most, result = u, i
		}
		return true
	})
	return most, result
}

// captures reports whether a function literal does anything with the slot.
func (w *walk) captures(lit inspector.Cursor, s *state) bool {
	for cur := range lit.Preorder((*ast.Ident)(nil), (*ast.CallExpr)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.CallExpr:
			if w.takesOver(n, s) || w.isContext(n, s) && w.carrierUse(cur) != idle {
				return true
			}
		case *ast.Ident:
			m := s.meaning(w.variable(n))
			if m == theSlot && w.usedInside(cur) || m == carrier && w.carrierUse(cur) != idle {
				return true
			}
		}
	}
	return false
}

// usedInside reports whether a literal does anything with a variable of the function around it.
func (w *walk) usedInside(cur inspector.Cursor) bool {
	switch cur.ParentEdgeKind() {
	case edge.AssignStmt_Rhs, edge.ValueSpec_Values:
		return true // the name that it has from then on is not followed
	}
	u, _ := w.useOf(cur)
	return u != idle
}

// capturedBefore tells who got hold of a variable before the slot is in it: shared if that is a deferred closure, and
// deferred if it is somebody of whom less is known.
func (w *walk) capturedBefore(v *types.Var, pos token.Pos) duty {
	held := open
	for cur := range w.f.cursor.Preorder((*ast.Ident)(nil)) {
		if cur.Node().Pos() >= pos {
			break
		}
		if id, ok := cur.Node().(*ast.Ident); !ok || w.TypesInfo.Uses[id] != v {
			continue
		}
		if isAddress(cur) {
			held = deferred
		} else if lit, ok := w.literalIn(cur); ok && w.usedInside(cur) {
			held = max(held, dutyOf(lit))
		}
	}
	return held
}

// literalIn returns the literal directly inside the function that cur is in, if it is in one.
func (w *walk) literalIn(cur inspector.Cursor) (inspector.Cursor, bool) {
	var outermost inspector.Cursor
	for lit := range cur.Enclosing((*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		if lit == w.f.cursor {
			break
		}
		outermost = lit
	}
	return outermost, outermost.Valid()
}

func isAddress(cur inspector.Cursor) bool {
	u, ok := cur.Parent().Node().(*ast.UnaryExpr)
	return ok && u.Op == token.AND
}

func dutyOf(lit inspector.Cursor) duty {
	if lit.ParentEdgeKind() == edge.CallExpr_Fun && lit.Parent().ParentEdgeKind() == edge.DeferStmt_Call {
		return shared
	}
	return deferred
}

// useOf tells what is done with the slot at cur, by where it stands.
func (w *walk) useOf(cur inspector.Cursor) (use, int) {
	parent := cur.Parent()
	switch kind, i := cur.ParentEdge(); kind {
	case edge.ParenExpr_X, edge.TypeAssertExpr_X:
		return w.useOf(parent)
	case edge.SelectorExpr_X:
		return w.methodUse(parent), -1
	case edge.ReturnStmt_Results:
		return returned, i
	case edge.CallExpr_Args:
		return w.argumentUse(parent)
	case edge.AssignStmt_Rhs, edge.ValueSpec_Values:
		return w.targetUse(parent.Node(), i), -1
	case edge.IndexExpr_Index:
		if parent.ParentEdgeKind() != edge.AssignStmt_Lhs {
			return idle, -1
		}
	case edge.BinaryExpr_X, edge.BinaryExpr_Y, edge.ExprStmt_X, edge.SwitchStmt_Tag, edge.CaseClause_List,
		edge.AssignStmt_Lhs, edge.ValueSpec_Names, edge.RangeStmt_Key, edge.RangeStmt_Value:
		return idle, -1
	}
	return kept, -1
}

// methodUse tells what a selector does with the slot before its dot. A method that is not called, but handed around, may
// be called later.
func (c *checker) methodUse(selector inspector.Cursor) use {
	n, _ := selector.Node().(*ast.SelectorExpr)
	if s := c.TypesInfo.Selections[n]; s != nil && s.Kind() == types.FieldVal {
		return kept // it has no exported fields: this is the package of the slot itself
	}
	name := n.Sel.Name
	called := selector.ParentEdgeKind() == edge.CallExpr_Fun
	switch {
	case name == c.release && called, name == "ID" && called && isEvicted(selector.Parent()):
		return released
	case name == c.release:
		return kept
	}
	return idle
}

// isEvicted reports whether an id goes straight to Evict, which frees its slot.
func isEvicted(id inspector.Cursor) bool {
	if id.ParentEdgeKind() != edge.CallExpr_Args {
		return false
	}
	evict, ok := id.Parent().Node().(*ast.CallExpr).Fun.(*ast.SelectorExpr)
	return ok && evict.Sel.Name == "Evict"
}

// argumentUse tells what a call does with a slot that is an argument.
func (w *walk) argumentUse(call inspector.Cursor) (use, int) {
	n, _ := call.Node().(*ast.CallExpr)
	switch {
	case w.TypesInfo.Types[n.Fun].IsType():
		return w.useOf(call)
	case onlyReads(typeutil.Callee(w.TypesInfo, n)):
		return idle, -1
	}
	return kept, -1
}

// targetUse tells what an assignment of the slot at index i does. A local variable is but another name for it.
func (w *walk) targetUse(stmt ast.Node, i int) use {
	lhs, rhs := sides(stmt)
	if len(lhs) != len(rhs) {
		i = 0 // x, ok := slot.(T)
	}
	return w.target(stmt, lhs[i])
}

func (w *walk) target(stmt ast.Node, l ast.Expr) use {
	id, ok := ast.Unparen(l).(*ast.Ident)
	if !ok {
		return kept
	}
	v := w.variable(id)
	if v != nil && (!w.f.owns(v) || w.capturedBefore(v, stmt.Pos()) != open) {
		return kept
	}
	return idle
}
