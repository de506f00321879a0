package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/cfg"
)

// maxNoted bounds the walk over the paths of a function, by how much there is to note: the keys of states, in bytes. Of a
// function that needs more, nothing is reported.
const maxNoted = 2 << 20

// An outcome is what becomes of a slot on the paths of the function that takes it.
type outcome struct {
	returned uint64    // bit i: it is returned as result i, and nobody else will release it
	kept     bool      // it is stored, sent, captured or passed on
	shown    bool      // its context may be with somebody who takes it over
	leak     token.Pos // a return that leaves it behind
	over     token.Pos // where it is assigned over
	again    bool      // the taking itself assigns it over, in a loop
	pile     token.Pos // a defer statement in a loop
}

// A walk follows one slot.
type walk struct {
	*checker
	f     *function
	t     *taking
	seen  map[string]bool
	noted int
	todo  []step
	end   outcome
	told  map[*types.Var]bool // see isTold
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
	w.push(f.graph.Blocks[0], w.start())
	for len(w.todo) > 0 {
		if w.noted > maxNoted {
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
		w.noted += len(key)
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
		cur, ok := w.f.find(n)
		return ok && cur.ParentEdgeKind() == edge.CommClause_Comm
	}
	return false
}

// node goes over one statement or expression and reports whether there is still a slot to follow behind it.
func (w *walk) node(n ast.Node, s *state) bool {
	if !s.taken {
		before := *s
		w.changes(n, s)
		w.fix(n, s, &before)
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
	w.reveals(n, s)
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
	case u == idle && s.duty == open && s.grant != doubtful:
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
