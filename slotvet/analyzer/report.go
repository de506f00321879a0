package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

func (c *checker) report() {
	notes := c.ignores()
	for _, f := range c.funcs {
		for _, t := range c.takings(f) {
			if t.silent {
				continue
			}
			for _, d := range c.findings(f, t) {
				if !notes.cover(d.Pos) {
					c.Report(d)
				}
			}
		}
	}
}

// findings returns what there is to say about one taking.
func (c *checker) findings(f *function, t *taking) []analysis.Diagnostic {
	o := c.follow(f, t)
	call, _ := t.cursor.Node().(*ast.CallExpr) // not a receive, which would be silent
	var found []analysis.Diagnostic
	add := func(at, end token.Pos, format string, args ...any) {
		found = append(found, analysis.Diagnostic{Pos: at, End: end, Message: fmt.Sprintf(format, args...)})
	}
	name := "the slot"
	if t.slot != nil {
		name = t.slot.Name()
	}
	switch {
	case t.fate == dropped, t.slot == nil && (o.leak.IsValid() || o.again):
		add(call.Pos(), call.End(), "the slot of %s is dropped and counts for ever: assign it and defer its Release", types.ExprString(call.Fun))
	case o.leak.IsValid():
		advice := "defer %[1]s.%[3]s() after the error check"
		if o.returned != 0 || o.kept {
			advice = "call %[1]s.%[3]s() before that" // other paths need it beyond the function
		}
		add(call.Pos(), call.End(), "%[1]s is not released on every path: line %[2]d returns without it; "+advice,
			name, c.Fset.Position(o.leak).Line, c.release)
		found[0].Related = []analysis.RelatedInformation{{Pos: o.leak, Message: "returns here without a release"}}
	case o.again:
		add(call.Pos(), call.End(), "%[1]s is not released before the loop takes the next one: call %[1]s.%[2]s() in each round", name, c.release)
	}
	if len(found) > 0 {
		found[0].SuggestedFixes = c.fixes(f, t, o)
	}
	if o.over.IsValid() {
		add(o.over, token.NoPos, "%[1]s is assigned over while it holds the slot taken on line %[2]d: call %[1]s.%[3]s() first",
			name, c.Fset.Position(call.Pos()).Line, c.release)
	}
	if o.pile.IsValid() {
		add(o.pile, token.NoPos, "%s is deferred in a loop, so the slots pile up until the function returns: "+
			"release each in its round, or make the body of the loop a function", name)
	}
	return found
}
