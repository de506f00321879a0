package analyzer

import (
	"fmt"
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzer reports slots that are not released. The package comment says which.
var Analyzer = newAnalyzer(slots) //nolint:gochecknoglobals // the name under which drivers look for an analyzer

func newAnalyzer(r resource) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "slotvet",
		Doc: "report slots of package inflight that are not released\n\n" +
			"A slot counts against its limits until Release. The analyzer reports slots that are dropped, " +
			"left behind by a return, assigned over, or deferred in a loop.",
		URL:       "https://pkg.go.dev/github.com/inflight-go/inflight/slotvet/analyzer",
		Requires:  []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
		FactTypes: []analysis.Fact{new(handsOver)},
		Run: func(pass *analysis.Pass) (any, error) {
			c := newChecker(pass, r)
			c.settle()
			c.report()
			return nil, nil // no other analyzer needs a result
		},
	}
}

// handsOver is the fact that a function gives its caller a slot to release.
type handsOver struct {
	Results uint64 // bit i: in its result i
}

// AFact makes it a fact.
func (*handsOver) AFact() {}

func (h *handsOver) String() string { return fmt.Sprintf("handsOver(%b)", h.Results) }

// A checker looks at one package.
type checker struct {
	*analysis.Pass
	resource
	root     inspector.Cursor
	funcs    []*function
	decls    map[*types.Func]*function
	lits     map[*ast.FuncLit]*function
	takers   map[*types.Func]bool     // they take a slot over from a context
	closures map[*types.Var]*function // by the variable that holds it, if nothing else is ever assigned to that
}

func newChecker(pass *analysis.Pass, r resource) *checker {
	files, _ := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	c := &checker{
		Pass:     pass,
		resource: r,
		root:     files.Root(),
		decls:    make(map[*types.Func]*function),
		lits:     make(map[*ast.FuncLit]*function),
		takers:   make(map[*types.Func]bool),
		closures: make(map[*types.Var]*function),
	}
	c.collect()
	return c
}

// settle finds out which functions of the package hand a slot over. One that calls another may have to wait for the
// answer of that, so it asks until no answer changes.
func (c *checker) settle() {
	for changed := true; changed; {
		changed = false
		for _, f := range c.funcs {
			if !c.returnsSlot(f.results) {
				continue
			}
			for _, t := range c.takings(f) {
				if hands := f.hands | c.follow(f, t).returned; hands != f.hands {
					f.hands, changed = hands, true
				}
			}
		}
	}
	for fn, f := range c.decls {
		if f.hands != 0 {
			c.ExportObjectFact(fn, &handsOver{f.hands})
		}
	}
}

func (c *checker) returnsSlot(results *types.Tuple) bool {
	for v := range results.Variables() {
		if c.is(v.Type()) {
			return true
		}
	}
	return false
}
