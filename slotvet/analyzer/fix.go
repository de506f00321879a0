package analyzer

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// fixes suggests to defer the release. That is safe if no path gives the slot to somebody who may need it beyond the
// function, no loop would pile it up, and it is known that the slot is the function's own.
func (c *checker) fixes(f *function, t *taking, o outcome) []analysis.SuggestedFix {
	if !o.leak.IsValid() || o.kept || o.shown || o.again || o.returned != 0 || inLoop(f, t) {
		return nil
	}
	if call, ok := t.cursor.Node().(*ast.CallExpr); !ok || c.guessed(call) {
		return nil
	}
	stmt, ok := c.root.FindNode(t.stmt)
	if !ok {
		return nil
	}
	var edits []analysis.TextEdit
	name := "slot"
	if t.slot != nil {
		name = t.slot.Name()
	} else if edits = c.nameBlank(t, name); edits == nil {
		return nil
	}
	at, indent := c.placeOfDefer(f, t, stmt)
	if !at.IsValid() {
		return nil
	}
	call := "defer " + name + "." + c.release + "()"
	edits = append(edits, analysis.TextEdit{Pos: at, End: at, NewText: []byte("\n" + indent + call)})
	return []analysis.SuggestedFix{{Message: "Add " + call, TextEdits: edits}}
}

func inLoop(f *function, t *taking) bool {
	for cur := range t.cursor.Enclosing((*ast.ForStmt)(nil), (*ast.RangeStmt)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		return cur != f.cursor
	}
	return false
}

// nameBlank gives the slot a name in place of the blank identifier, if it is free.
func (c *checker) nameBlank(t *taking, name string) []analysis.TextEdit {
	stmt, ok := t.stmt.(*ast.AssignStmt)
	if !ok || stmt.Tok != token.DEFINE {
		return nil
	}
	if _, taken := c.Pkg.Scope().Innermost(stmt.Pos()).LookupParent(name, token.NoPos); taken != nil {
		return nil
	}
	blank := stmt.Lhs[0] // as the callee returns the slot first; another form is left alone
	if id, ok := blank.(*ast.Ident); !ok || id.Name != "_" {
		return nil
	}
	return []analysis.TextEdit{{Pos: blank.Pos(), End: blank.End(), NewText: []byte(name)}}
}

// placeOfDefer returns the end of the line behind which to defer, and the indentation there: after the error check that
// follows, or else after the statement, as a release of nil does nothing.
func (c *checker) placeOfDefer(f *function, t *taking, stmt inspector.Cursor) (at token.Pos, indent string) {
	w := newWalk(c, f, t)
	var s state
	w.take(&s)
	switch stmt.ParentEdgeKind() {
	case edge.BlockStmt_List, edge.CaseClause_Body, edge.CommClause_Body:
		last := stmt.Node()
		if next, ok := stmt.NextSibling(); ok {
			check, ok := next.Node().(*ast.IfStmt)
			if ok && check.Init == nil && check.Else == nil && len(w.assume(s, check.Cond, true)) == 0 {
				last = check
			}
		}
		at, indent = c.endOfLine(last.End())
		return at, indent
	case edge.IfStmt_Init:
		check, _ := stmt.Parent().Node().(*ast.IfStmt)
		block := check.Body
		if len(w.assume(s, check.Cond, true)) == 0 {
			block, _ = check.Else.(*ast.BlockStmt)
		} else if len(w.assume(s, check.Cond, false)) != 0 {
			return token.NoPos, ""
		}
		if block != nil {
			at, indent = c.endOfLine(block.Lbrace + 1)
			return at, indent + "\t"
		}
	}
	return token.NoPos, ""
}

// endOfLine returns the end of the line of pos and the indentation of the line, if no code follows on it.
func (c *checker) endOfLine(pos token.Pos) (end token.Pos, indent string) {
	file := c.Fset.File(pos)
	content, err := c.ReadFile(file.Name())
	if err != nil {
		return token.NoPos, ""
	}
	begin := file.Offset(file.LineStart(file.Line(pos)))
	offset := file.Offset(pos)
	rest, _, found := strings.Cut(string(content[offset:]), "\n")
	if code := strings.TrimSpace(rest); !found || code != "" && !strings.HasPrefix(code, "//") {
		return token.NoPos, ""
	}
	line := string(content[begin:offset])
	return file.Pos(offset + len(strings.TrimRight(rest, "\r"))), line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}
