package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ast/edge"
)

// conditions returns how often each condition is asked in the function. Only one that is asked twice is worth to
// remember on a path.
func (w *walk) conditions() map[string]int {
	if w.f.conditions != nil {
		return w.f.conditions
	}
	asked := make(map[string]int)
	w.f.conditions = asked
	count := func(x, y ast.Expr) {
		if text, ok := w.textOf(x, y); ok {
			asked[text]++
		}
	}
	for cur := range w.f.cursor.Preorder((*ast.IfStmt)(nil), (*ast.ForStmt)(nil), (*ast.SwitchStmt)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.IfStmt:
			leaves(n.Cond, count)
		case *ast.ForStmt:
			if n.Cond != nil {
				leaves(n.Cond, count)
			}
		case *ast.SwitchStmt:
			for _, clause := range n.Body.List {
				clause, _ := clause.(*ast.CaseClause)
				for _, e := range clause.List {
					if n.Tag != nil {
						count(n.Tag, e)
					} else {
						leaves(e, count)
					}
				}
			}
		}
	}
	return asked
}

// leaves calls f with each condition that another one is made of.
func leaves(e ast.Expr, f func(x, y ast.Expr)) {
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			leaves(e.X, f)
			return
		}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			leaves(e.X, f)
			leaves(e.Y, f)
			return
		case token.EQL, token.NEQ:
			f(e.X, e.Y)
			return
		}
	}
	f(e, nil)
}

// textOf writes the condition x, or x == y, so that two that are written alike and mean the same variables have the same
// text. It fails for one that may have another outcome the next time without an assignment in between.
func (w *walk) textOf(x, y ast.Expr) (string, bool) {
	var b strings.Builder
	if !w.write(&b, x) {
		return "", false
	}
	if y != nil {
		b.WriteString("==")
		if !w.write(&b, y) {
			return "", false
		}
	}
	return b.String(), true
}

func (w *walk) write(b *strings.Builder, e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v := w.variable(e)
		if v == nil {
			b.WriteString(e.Name) // a constant, nil
			return true
		}
		b.WriteString(mark(v))
		return !w.changesElsewhere(v)
	case *ast.BasicLit:
		b.WriteString(e.Value)
		return true
	case *ast.SelectorExpr:
		if !w.write(b, e.X) {
			return false
		}
		b.WriteString("." + e.Sel.Name)
		return true
	case *ast.IndexExpr:
		if !w.write(b, e.X) {
			return false
		}
		b.WriteString("[")
		return w.write(b, e.Index)
	case *ast.BinaryExpr:
		if !w.write(b, e.X) {
			return false
		}
		b.WriteString(e.Op.String())
		return w.write(b, e.Y)
	}
	return false
}

// changesElsewhere reports whether a variable may change other than by an assignment on the path.
func (w *walk) changesElsewhere(v *types.Var) bool {
	changes, known := w.f.elsewhere[v]
	if !known {
		changes = w.findChange(v)
		w.f.elsewhere[v] = changes
	}
	return changes
}

func (w *walk) findChange(v *types.Var) bool {
	for cur := range w.f.cursor.Preorder((*ast.Ident)(nil)) {
		if id, ok := cur.Node().(*ast.Ident); !ok || w.TypesInfo.Uses[id] != v {
			continue
		}
		_, inside := w.literalIn(cur)
		switch cur.ParentEdgeKind() {
		case edge.AssignStmt_Lhs, edge.IncDecStmt_X:
			if inside {
				return true
			}
		case edge.UnaryExpr_X:
			if isAddress(cur) {
				return true
			}
		}
	}
	return false
}
