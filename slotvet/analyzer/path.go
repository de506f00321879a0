package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/cfg"
)

// maxSteps bounds the walk over the paths of a function. In one that has more, nothing is reported.
const maxSteps = 20_000

// An outcome is what becomes of a slot on the paths of the function that takes it.
type outcome struct {
	returned uint64    // bit i: it is returned as result i, and nobody else will release it
	kept     bool      // it is stored, sent, captured or passed on
	leak     token.Pos // a return that leaves it behind
	over     token.Pos // where it is assigned over
	again    bool      // the taking itself assigns it over, in a loop
	pile     token.Pos // a defer statement in a loop
}

// A walk follows one slot.
type walk struct {
	*checker
	f    *function
	t    *taking
	seen map[string]bool
	todo []step
	end  outcome
}

type step struct {
	block *cfg.Block
	state state
}

func newWalk(c *checker, f *function, t *taking) *walk {
	return &walk{checker: c, f: f, t: t, seen: make(map[string]bool)}
}

// follow tells what becomes of a slot that is taken in f.
func (c *checker) follow(f *function, t *taking) outcome {
	switch t.fate {
	case idle:
	case returned:
		return outcome{returned: 1 << t.result}
	default:
		return outcome{kept: t.fate == kept}
	}
	w := newWalk(c, f, t)
	w.push(f.graph.Blocks[0], state{})
	for len(w.todo) > 0 {
		if len(w.seen) > maxSteps {
			return outcome{}
		}
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if !w.block(next.block, &next.state) {
			continue
		}
		for i, successor := range next.block.Succs {
			for _, s := range w.branch(next.block, i, next.state) {
				w.push(successor, s)
			}
		}
	}
	return w.end
}

func (w *walk) push(b *cfg.Block, s state) {
	if key := s.key(b.Index); !w.seen[key] {
		w.seen[key] = true
		w.todo = append(w.todo, step{b, s})
	}
}

// block goes through a block and reports whether there is still a slot to follow at its end.
func (w *walk) block(b *cfg.Block, s *state) bool {
	if b.Kind == cfg.KindSelectCaseBody {
		if clause, ok := b.Stmt.(*ast.CommClause); ok && !w.node(clause.Comm, s) {
			return false
		}
	}
	for _, n := range b.Nodes {
		if w.isComm(n) {
			continue // the graph has them all before the select; only the one that is chosen takes place
		}
		if !w.node(n, s) {
			return false
		}
	}
	return true
}

func (w *walk) isComm(n ast.Node) bool {
	switch n.(type) {
	case *ast.ExprStmt, *ast.SendStmt, *ast.AssignStmt:
		cur, ok := w.root.FindNode(n)
		return ok && cur.ParentEdgeKind() == edge.CommClause_Comm
	}
	return false
}

// node goes over one statement or expression and reports whether there is still a slot to follow behind it.
func (w *walk) node(n ast.Node, s *state) bool {
	if !s.taken {
		w.changes(n, s)
		if n == w.t.stmt {
			w.take(s)
		}
		return true
	}
	switch n := n.(type) {
	case *ast.ReturnStmt:
		w.leave(n, s)
		return false
	case *ast.DeferStmt:
		w.postpone(n, s)
		return true
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && (w.stops(call) || w.denied(call, s)) {
			return false
		}
	}
	if n == w.t.stmt && s.duty != open && s.defers.IsValid() {
		w.end.pile = s.defers
		return false
	}
	if u, _ := w.uses(n, s); u != idle {
		w.end.kept = w.end.kept || u == kept
		return false
	}
	return w.assign(n, s)
}

// take begins to follow the slot.
func (w *walk) take(s *state) {
	s.taken = true
	if v := w.t.slot; v != nil {
		s.duty = w.capturedBefore(v, w.t.stmt.Pos())
		s.set(v, theSlot)
	}
	for _, v := range w.t.others {
		switch {
		case isError(v.Type()):
			s.set(v, failure)
		case isBool(v.Type()):
			s.set(v, ifFalse)
		}
	}
}

// leave ends the path at a return.
func (w *walk) leave(ret *ast.ReturnStmt, s *state) {
	use := w.uses
	if len(ret.Results) == 0 {
		use = w.namedResult
	}
	u, i := use(ret, s)
	switch {
	case u == returned && s.duty != deferred:
		w.end.returned |= 1 << i
	case u == idle && s.duty == open:
		if w.end.leak == token.NoPos || ret.Pos() < w.end.leak {
			w.end.leak = ret.Pos()
		}
	case u == kept:
		w.end.kept = true
	}
}

// namedResult tells whether a return without values returns the slot.
func (w *walk) namedResult(_ ast.Node, s *state) (use, int) {
	for i := range w.f.results.Len() {
		if s.meaning(w.f.results.At(i)) == theSlot {
			return returned, i
		}
	}
	return idle, -1
}

// postpone notes who will see to the slot when the function returns.
func (w *walk) postpone(n *ast.DeferStmt, s *state) {
	if u, _ := w.uses(n, s); u == idle {
		return
	}
	s.defers = n.Pos()
	if _, closure := n.Call.Fun.(*ast.FuncLit); closure && len(n.Call.Args) == 0 {
		s.duty = max(s.duty, shared)
	} else {
		s.duty = deferred
	}
}

// changes forgets what was decided by variables that n assigns to.
func (w *walk) changes(n ast.Node, s *state) {
	lhs, _ := sides(n)
	if n, ok := n.(*ast.IncDecStmt); ok {
		lhs = []ast.Expr{n.X}
	}
	for _, l := range lhs {
		if v := w.variable(rootOf(l)); v != nil {
			s.forget(v)
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
	w.changes(n, s)
	lhs, rhs := sides(n)
	before := *s
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
	if s.duty != open || w.t.slot != nil && s.handles() > 0 {
		return true
	}
	if n == w.t.stmt {
		w.end.again = true
		return false
	}
	if before.handles() > 0 {
		w.end.over = n.Pos()
		return false
	}
	return true
}

// meaningOf tells what a variable of type t means that is set to e.
func (w *walk) meaningOf(e ast.Expr, t types.Type, s *state) meaning {
	if v := w.variable(w.plain(e)); v != nil && s.meaning(v) != nothing {
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
	case w.mentions(e, failure, s) && isError(t):
		return failure
	case w.mentions(e, failure, s) && isBool(t):
		return ifTrue
	case w.carries(e, s) && !isError(t) && !isBool(t):
		return carrier
	}
	return nothing
}
