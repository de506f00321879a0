package analyzer

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/cfg"
)

// branch returns the states in which a path goes on from b to its successor i. There is none if by then there is no slot
// or the path cannot be.
func (w *walk) branch(b *cfg.Block, i int, s state) []state {
	if len(b.Succs) != 2 {
		return []state{s}
	}
	truth := i == 0
	if clause, ok := b.Succs[1].Stmt.(*ast.CaseClause); ok && b.Succs[1].Kind == cfg.KindSwitchNextCase {
		return w.branchSwitch(b, clause, truth, s)
	}
	switch b.Succs[0].Kind {
	case cfg.KindRangeBody:
		return w.branchRange(b, truth, s)
	case cfg.KindIfThen, cfg.KindForBody:
		if cond, ok := b.Nodes[len(b.Nodes)-1].(ast.Expr); ok {
			return w.assume(s, cond, truth)
		}
	}
	return []state{s}
}

// branchRange enters or leaves a loop over a range. One over a constant number is not left before its first round.
func (w *walk) branchRange(b *cfg.Block, round bool, s state) []state {
	loop, ok := b.Stmt.(*ast.RangeStmt)
	if !ok {
		return []state{s}
	}
	if n := w.TypesInfo.Types[loop.X].Value; n == nil || n.Kind() != constant.Int || constant.Sign(n) <= 0 {
		return []state{s}
	}
	entered := fmt.Sprintf("<range@%d>", loop.Pos())
	if round {
		s.decide(entered, true)
		return []state{s}
	}
	if !s.undecide(entered) {
		return nil
	}
	return []state{s}
}

func (w *walk) branchSwitch(b *cfg.Block, clause *ast.CaseClause, truth bool, s state) []state {
	cur, ok := w.f.find(clause)
	if !ok {
		return []state{s}
	}
	switch n := cur.Parent().Parent().Node().(type) {
	case *ast.SwitchStmt:
		cond, ok := b.Nodes[len(b.Nodes)-1].(ast.Expr)
		switch {
		case !ok:
		case n.Tag == nil:
			return w.assume(s, cond, truth)
		default:
			return w.equal(s, n.Tag, cond, truth)
		}
	case *ast.TypeSwitchStmt:
		if w.refutedByType(n, clause, truth, &s) {
			return nil
		}
	}
	return []state{s}
}

// refutedByType reports whether there is no slot if the clause of a type switch is taken, or is not.
func (w *walk) refutedByType(n *ast.TypeSwitchStmt, clause *ast.CaseClause, truth bool, s *state) bool {
	var asserted ast.Expr
	switch a := n.Assign.(type) {
	case *ast.ExprStmt:
		asserted = a.X
	case *ast.AssignStmt:
		asserted = a.Rhs[0]
	}
	assertion, ok := ast.Unparen(asserted).(*ast.TypeAssertExpr)
	if !ok {
		return false
	}
	v := w.variable(w.plain(assertion.X))
	if v == nil || s.meaning(v) != failure {
		return false
	}
	if slices.ContainsFunc(clause.List, w.isNil) {
		return !truth && len(clause.List) == 1
	}
	return truth
}

func (w *walk) isNil(e ast.Expr) bool { return w.TypesInfo.Types[e].IsNil() }

// assume narrows a state to the paths on which a condition is as given.
func (w *walk) assume(s state, cond ast.Expr, truth bool) []state {
	if value := w.valueOf(cond, &s); value != "" {
		if (value == "true") != truth {
			return nil
		}
		return []state{s}
	}
	switch e := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return w.assume(s, e.X, !truth)
		}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			return w.assumeBoth(s, e, truth)
		case token.EQL:
			return w.equal(s, e.X, e.Y, truth)
		case token.NEQ:
			return w.equal(s, e.X, e.Y, !truth)
		}
	case *ast.CallExpr:
		if w.refutedByCall(e, truth, &s) {
			return nil
		}
		if w.answers(e) {
			return []state{s}
		}
	case *ast.Ident:
		switch b := s.binding(w.variable(e)); {
		case b.m == ifTrue && truth, b.m == ifFalse && !truth:
			return nil
		case b.m != nothing:
			return []state{s}
		}
	}
	return w.decided(s, cond, nil, truth)
}

// assumeBoth splits a conjunction or disjunction. Either the first operand decides it, or both are as the outcome says.
func (w *walk) assumeBoth(s state, e *ast.BinaryExpr, truth bool) []state {
	var states []state
	decisive := e.Op == token.LOR // the value of an operand that decides alone
	if truth == decisive {
		states = w.assume(s, e.X, decisive)
	}
	for _, s := range w.assume(s, e.X, !decisive) {
		states = append(states, w.assume(s, e.Y, truth)...)
	}
	return states
}

// equal narrows a state to the paths on which x and y are equal, or are not.
func (w *walk) equal(s state, x, y ast.Expr, truth bool) []state {
	if a, b := w.valueOf(x, &s), w.valueOf(y, &s); a != "" && b != "" {
		if (a == b) != truth {
			return nil
		}
		return []state{s}
	}
	if w.isNil(x) {
		x, y = y, x
	}
	m := nothing
	if v := w.variable(w.plain(x)); v != nil {
		m = s.meaning(v)
	}
	if call, ok := ast.Unparen(x).(*ast.CallExpr); ok && w.takesOver(call, &s) {
		m = theSlot // nil: somebody has taken it over
	}
	switch {
	case w.isNil(y):
		if m == theSlot && truth || m == failure && !truth {
			return nil
		}
		if m == theSlot || m == failure {
			s.grant = certain
		}
	case m == failure && truth: // a certain error
		return nil
	case w.isTrue(y):
		return w.assume(s, x, truth)
	}
	if m != nothing && m != fixed {
		return []state{s}
	}
	return w.decided(s, x, y, truth)
}

func (w *walk) isTrue(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && w.TypesInfo.Uses[id] == types.Universe.Lookup("true")
}

// decided narrows a state by a condition of which it is not known what it says about the slot: x, or x == y. One that is asked once more on
// a path has the same outcome.
func (w *walk) decided(s state, x, y ast.Expr, truth bool) []state {
	if w.tells(x, &s) || y != nil && w.tells(y, &s) {
		s.doubt()
	}
	if w.isTold(x) || y != nil && w.isTold(y) {
		s.grant = doubtful
	}
	text, ok := w.textOf(x, y)
	if !ok || w.conditions()[text] < 2 || s.decide(text, truth) {
		return []state{s}
	}
	return nil
}

// plain strips what leaves a value as it is: parentheses, conversions and type assertions.
func (w *walk) plain(e ast.Expr) ast.Expr {
	switch x := ast.Unparen(e).(type) {
	case *ast.TypeAssertExpr:
		return w.plain(x.X)
	case *ast.CallExpr:
		if w.TypesInfo.Types[x.Fun].IsType() && len(x.Args) == 1 {
			return w.plain(x.Args[0])
		}
		return x
	default:
		return x
	}
}

// mentions reports whether a variable with the given meaning is part of an expression.
func (w *walk) mentions(e ast.Expr, m meaning, s *state) bool {
	return w.contains(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		v := (*types.Var)(nil)
		if ok {
			v = w.variable(id)
		}
		return v != nil && s.meaning(v) == m
	})
}

func (w *walk) contains(in ast.Node, is func(ast.Node) bool) bool {
	found := false
	ast.Inspect(in, func(n ast.Node) bool {
		found = found || n != nil && is(n)
		return !found
	})
	return found
}
