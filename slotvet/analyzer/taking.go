package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
)

// A function is a body of code in which slots are followed: a declaration or a literal.
type function struct {
	cursor     inspector.Cursor
	graph      *cfg.CFG
	results    *types.Tuple
	candidates []inspector.Cursor // calls and receives that yield slots
	hands      uint64             // see handsOver; grows until checker.settle is done

	// What is found out once and asked on each path.
	cursors    map[ast.Node]inspector.Cursor // see find
	conditions map[string]int                // see walk.conditions
	asked      map[*types.Var]bool           // see walk.isAsked
	elsewhere  map[*types.Var]bool           // see walk.changesElsewhere
}

// collect finds the functions of the package that get slots from somewhere.
func (c *checker) collect() {
	cfgs, _ := c.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	for cur := range c.root.Preorder((*ast.CallExpr)(nil), (*ast.UnaryExpr)(nil)) {
		if !c.isCandidate(cur.Node()) {
			continue
		}
		c.noteTaker(cur)
		for enclosing := range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
			if f := c.function(cfgs, enclosing); f != nil {
				f.candidates = append(f.candidates, cur)
			}
			break
		}
	}
	for cur := range c.root.Preorder((*ast.FuncLit)(nil)) { // also those that get none: a call may ask for their answer
		c.function(cfgs, cur)
	}
	c.nameClosures()
}

// noteTaker notes that the function around a call takes a slot over from a context, if it does.
func (c *checker) noteTaker(cur inspector.Cursor) {
	call, ok := cur.Node().(*ast.CallExpr)
	if !ok || !isTake(typeutil.Callee(c.TypesInfo, call)) {
		return
	}
	for enclosing := range cur.Enclosing((*ast.FuncDecl)(nil)) {
		if decl, ok := enclosing.Node().(*ast.FuncDecl); ok {
			if fn, ok := c.TypesInfo.Defs[decl.Name].(*types.Func); ok {
				c.takers[fn] = true
			}
		}
	}
}

func (c *checker) isCandidate(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if c.TypesInfo.Types[n.Fun].IsType() {
			return false
		}
		for range c.slotsOf(n) {
			return true
		}
	case *ast.UnaryExpr:
		if n.Op != token.ARROW {
			return false
		}
		for range c.slotsOf(n) {
			return true
		}
	}
	return false
}

// function returns the function at a cursor, a new one if it is asked for the first time.
func (c *checker) function(cfgs *ctrlflow.CFGs, cur inspector.Cursor) *function {
	switch n := cur.Node().(type) {
	case *ast.FuncDecl:
		fn, ok := c.TypesInfo.Defs[n.Name].(*types.Func)
		if !ok || n.Body == nil {
			return nil
		}
		graph := cfgs.FuncDecl(n)
		if graph == nil {
			return nil // it is one of those that are known not to return, zap's Fatal and the like
		}
		if c.decls[fn] == nil {
			c.decls[fn] = c.add(cur, graph, fn.Signature())
		}
		return c.decls[fn]
	case *ast.FuncLit:
		sig, ok := c.TypesInfo.TypeOf(n).(*types.Signature)
		if !ok {
			return nil
		}
		if c.lits[n] == nil {
			c.lits[n] = c.add(cur, cfgs.FuncLit(n), sig)
		}
		return c.lits[n]
	}
	return nil
}

func (c *checker) add(cur inspector.Cursor, graph *cfg.CFG, sig *types.Signature) *function {
	f := &function{
		cursor:    cur,
		graph:     graph,
		results:   sig.Results(),
		asked:     make(map[*types.Var]bool),
		elsewhere: make(map[*types.Var]bool),
	}
	c.funcs = append(c.funcs, f)
	return f
}

// nameClosures finds the variables that hold one literal and never anything else.
func (c *checker) nameClosures() {
	assigned := make(map[*types.Var]int)
	for cur := range c.root.Preorder((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil)) {
		lhs, rhs := sides(cur.Node())
		for i, l := range lhs {
			v := c.variable(l)
			if v == nil || len(rhs) == 0 {
				continue
			}
			assigned[v]++
			if len(rhs) != len(lhs) {
				continue
			}
			if lit, ok := ast.Unparen(rhs[i]).(*ast.FuncLit); ok {
				c.closures[v] = c.lits[lit]
			}
		}
	}
	for v, n := range assigned {
		if n > 1 {
			delete(c.closures, v)
		}
	}
}

// sides returns what an assignment or a declaration of variables has on its left and on its right.
func sides(n ast.Node) (lhs, rhs []ast.Expr) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.ASSIGN && n.Tok != token.DEFINE {
			return n.Lhs, nil
		}
		return n.Lhs, n.Rhs
	case *ast.ValueSpec:
		for _, name := range n.Names {
			lhs = append(lhs, name)
		}
		return lhs, n.Values
	}
	return nil, nil
}

// variable returns the variable that an expression names, nil if it names none; the blank identifier names none.
func (c *checker) variable(e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	v, _ := c.TypesInfo.ObjectOf(id).(*types.Var)
	return v
}

// find returns the cursor of a node of the function.
func (f *function) find(n ast.Node) (cur inspector.Cursor, ok bool) {
	if f.cursors == nil {
		f.cursors = make(map[ast.Node]inspector.Cursor)
		for cur := range f.cursor.Preorder() {
			f.cursors[cur.Node()] = cur
		}
	}
	cur, ok = f.cursors[n]
	return cur, ok
}

// owns reports whether v is a local variable of the function, or a parameter or named result.
func (f *function) owns(v *types.Var) bool {
	n := f.cursor.Node()
	return n.Pos() <= v.Pos() && v.Pos() < n.End()
}

// A taking is a place where a function becomes responsible for a slot.
type taking struct {
	cursor inspector.Cursor // the call or the receive
	fate   use              // what becomes of the slot there and then; idle if it must be followed
	result int              // if it is returned, as which result

	// If it is to be followed:
	stmt   ast.Node   // what assigns it
	slot   *types.Var // nil if it is blank
	others []*types.Var

	silent bool // it is only followed to know whether the function hands it over
}

// takings returns the places where a function takes slots, as far as it is known by now which calls hand one over.
func (c *checker) takings(f *function) []*taking {
	var ts []*taking
	for _, cur := range f.candidates {
		switch n := cur.Node().(type) {
		case *ast.CallExpr:
			for i := range c.slotsOf(n) {
				if c.handed(n, i) {
					ts = append(ts, c.newTaking(f, cur, i))
				}
			}
		case *ast.UnaryExpr: // who receives a slot need not be responsible for it
			t := c.newTaking(f, cur, 0)
			t.silent = true
			ts = append(ts, t)
		}
	}
	return ts
}

// newTaking looks where the slot in result i of the expression at cur goes.
func (c *checker) newTaking(f *function, cur inspector.Cursor, i int) *taking {
	t := &taking{cursor: cur}
	at := cur
	for at.ParentEdgeKind() == edge.ParenExpr_X {
		at = at.Parent()
	}
	parent := at.Parent()
	switch kind, index := at.ParentEdge(); kind {
	case edge.ExprStmt_X, edge.GoStmt_Call, edge.DeferStmt_Call:
		t.fate = dropped
	case edge.BinaryExpr_X, edge.BinaryExpr_Y:
		t.fate = c.compared(cur)
	case edge.SelectorExpr_X:
		if t.fate = c.methodUse(parent); t.fate == idle {
			t.fate = dropped
		}
	case edge.ReturnStmt_Results:
		t.fate, t.result = returned, index+i
	case edge.AssignStmt_Rhs, edge.ValueSpec_Values:
		c.assigned(f, t, parent.Node(), index+i)
	default:
		t.fate = kept
	}
	return t
}

// assigned notes that the slot is on the left of stmt, at index i.
func (c *checker) assigned(f *function, t *taking, stmt ast.Node, i int) {
	lhs, rhs := sides(stmt)
	t.stmt = stmt
	id, ok := ast.Unparen(lhs[i]).(*ast.Ident)
	if !ok {
		t.fate = kept
		return
	}
	if t.slot = c.variable(id); t.slot != nil && !f.owns(t.slot) {
		t.fate = kept
		return
	}
	if len(rhs) == 1 {
		for j, l := range lhs {
			if v := c.variable(l); v != nil && j != i {
				t.others = append(t.others, v)
			}
		}
	}
	if t.slot == nil && len(t.others) == 0 {
		t.fate = dropped
	}
}

// compared tells what becomes of a slot of which nothing is kept but whether it is nil. That is how one asks whether a
// slot that is at hand anyway is still there to be taken over.
func (c *checker) compared(cur inspector.Cursor) use {
	call, ok := cur.Node().(*ast.CallExpr)
	if !ok || !isTake(typeutil.Callee(c.TypesInfo, call)) {
		return dropped
	}
	scope := c.Pkg.Scope().Innermost(call.Pos())
	for ; scope != nil && scope != c.Pkg.Scope(); scope = scope.Parent() {
		for _, name := range scope.Names() {
			if v, ok := scope.Lookup(name).(*types.Var); ok && v.Pos() < call.Pos() && c.is(v.Type()) {
				return kept
			}
		}
	}
	return dropped
}
