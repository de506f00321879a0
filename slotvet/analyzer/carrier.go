package analyzer

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// carries reports whether the slot can be taken from what an expression yields.
func (w *walk) carries(e ast.Expr, s *state) bool {
	return w.mentions(e, carrier, s) || w.contains(e, func(n ast.Node) bool { return w.isContext(n, s) })
}

// isContext reports whether n makes a context that carries the slot.
func (w *walk) isContext(n ast.Node, s *state) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Context" {
		return false
	}
	v := w.variable(w.plain(selector.X))
	return v != nil && s.meaning(v) == theSlot
}

// takesOver reports whether a call takes the slot over from a context that carries it.
func (w *walk) takesOver(call *ast.CallExpr, s *state) bool {
	return isTake(typeutil.Callee(w.TypesInfo, call)) && w.carries(call.Args[0], s)
}

// carrierUse tells what is done with what carries the slot: who returns, stores or sends it, or gives it to a goroutine, hands
// the slot on with it. A call that returns does not, unless the function is known to take the slot over.
func (w *walk) carrierUse(cur inspector.Cursor) use {
	if e, ok := cur.Node().(ast.Expr); ok && !w.TypesInfo.Types[e].IsType() && !canCarry(w.TypesInfo.TypeOf(e)) {
		if cur.ParentEdgeKind() == edge.GoStmt_Call {
			return kept
		}
		return idle
	}
	parent := cur.Parent()
	switch kind, i := cur.ParentEdge(); kind {
	case edge.ParenExpr_X, edge.TypeAssertExpr_X, edge.UnaryExpr_X, edge.StarExpr_X, edge.CallExpr_Fun:
		return w.carrierUse(parent)
	case edge.SelectorExpr_X:
		if parent.ParentEdgeKind() == edge.CallExpr_Fun {
			return w.carrierUse(parent.Parent())
		}
		return idle
	case edge.CallExpr_Args:
		call, _ := parent.Node().(*ast.CallExpr)
		if fn, ok := typeutil.Callee(w.TypesInfo, call).(*types.Func); ok && w.takers[fn.Origin()] {
			return kept
		}
		return w.carrierUse(parent)
	case edge.AssignStmt_Rhs, edge.ValueSpec_Values:
		lhs, rhs := sides(parent.Node())
		if len(lhs) == len(rhs) {
			return w.targetUse(parent.Node(), i)
		}
		most := idle
		for i, l := range lhs {
			if t := w.TypesInfo.TypeOf(l); t != nil && canCarry(t) {
				most = max(most, w.target(parent.Node(), lhs[i]))
			}
		}
		return most
	case edge.BinaryExpr_X, edge.BinaryExpr_Y, edge.ExprStmt_X, edge.SwitchStmt_Tag, edge.CaseClause_List,
		edge.AssignStmt_Lhs, edge.ValueSpec_Names, edge.RangeStmt_Key, edge.RangeStmt_Value, edge.RangeStmt_X,
		edge.DeferStmt_Call, edge.IndexExpr_X, edge.SliceExpr_X, edge.IncDecStmt_X:
		return idle
	}
	return kept
}

// canCarry reports whether a value of type t that is made with a context may have it. A response has no use for it.
func canCarry(t types.Type) bool {
	if tuple, ok := t.(*types.Tuple); ok {
		for v := range tuple.Variables() {
			if canCarry(v.Type()) {
				return true
			}
		}
		return false
	}
	if obj, _, _ := types.LookupFieldOrMethod(t, true, nil, "Context"); obj != nil {
		return true
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		if n, ok := types.Unalias(p.Elem()).(*types.Named); ok && pathOf(n.Obj()) == "net/http" {
			return false
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return false
	case *types.Slice:
		return canCarry(u.Elem())
	}
	return !isError(t)
}
