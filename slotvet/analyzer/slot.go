package analyzer

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// A resource is what has to be given back. There is one, the slot; the tests let the analyzer loose on others, of which
// there is more code.
type resource struct {
	is      func(types.Type) bool
	release string // the method that gives it back
	// gives reports whether a function hands one over, where that is known without a look at its body.
	gives func(*types.Func) (handsOver, known bool)
}

const inflight = "github.com/inflight-go/inflight"

var slots = resource{ //nolint:gochecknoglobals // a constant, but for Go
	is: func(t types.Type) bool {
		p, ok := types.Unalias(t).(*types.Pointer)
		if !ok {
			return false
		}
		n, ok := types.Unalias(p.Elem()).(*types.Named)
		return ok && n.Obj().Name() == "Slot" && pathOf(n.Obj()) == inflight
	},
	release: "Release",
	gives: func(fn *types.Func) (handsOver, known bool) {
		if fn.Signature().Recv() != nil && (fn.Name() == "Acquire" || fn.Name() == "TryAcquire") && canFail(fn.Signature()) {
			return true, true
		}
		return isTake(fn), pathOf(fn) == inflight
	},
}

// isTake reports whether fn is the function that takes a slot over from a context.
func isTake(fn types.Object) bool {
	return fn != nil && fn.Name() == "Take" && pathOf(fn) == inflight
}

// pathOf returns the path of the package of an object, that of a test variant or a vendored package as that of the
// package itself.
func pathOf(obj types.Object) string {
	if obj.Pkg() == nil {
		return ""
	}
	path, _, _ := strings.Cut(obj.Pkg().Path(), " ")
	if _, after, ok := strings.Cut(path, "/vendor/"); ok {
		return after
	}
	return path
}

// handed reports whether a call makes its caller responsible for the slot in its result i.
func (c *checker) handed(call *ast.CallExpr, i int) bool {
	switch fn := typeutil.Callee(c.TypesInfo, call).(type) {
	case *types.Func:
		fn = fn.Origin()
		if hands, known := c.gives(fn); known {
			return hands
		}
		sig := fn.Signature()
		if recv := sig.Recv(); recv != nil && types.IsInterface(recv.Type()) {
			return c.unseen(fn.Name(), sig)
		}
		if _, generic := sig.Results().At(i).Type().(*types.TypeParam); generic {
			return c.handedIn(call) // as by must(reg.Acquire(ctx, key))
		}
		if f := c.decls[fn]; f != nil {
			return f.hands>>i&1 != 0
		}
		var fact handsOver
		return c.ImportObjectFact(fn, &fact) && fact.Results>>i&1 != 0
	case *types.Var:
		if f := c.closures[fn]; f != nil {
			return f.hands>>i&1 != 0
		}
		sig, ok := fn.Type().Underlying().(*types.Signature)
		return ok && c.unseen(fn.Name(), sig)
	case nil:
		if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
			return c.lits[lit].hands>>i&1 != 0
		}
		sig, ok := c.TypesInfo.TypeOf(call.Fun).Underlying().(*types.Signature)
		return ok && c.unseen("", sig)
	}
	return false
}

// unseen reports whether a function whose body is not known, behind an interface or in a variable, hands a slot over.
// One that is called so does, and one that can fail, unless it is called as if it looked one up. What returns nothing but
// a slot, or whether there is one, may just show it.
func (c *checker) unseen(name string, sig *types.Signature) bool {
	begins := func(with string) bool { return strings.HasPrefix(strings.ToLower(name), with) }
	switch {
	case slices.ContainsFunc([]string{"acquire", "tryacquire", "take", "reserve"}, begins):
		return true
	case slices.ContainsFunc([]string{"get", "find", "lookup", "load", "peek"}, begins):
		return false
	}
	return canFail(sig)
}

func canFail(sig *types.Signature) bool {
	for v := range sig.Results().Variables() {
		if isError(v.Type()) {
			return true
		}
	}
	return false
}

// guessed reports whether it is only by its name or type that a call is taken to hand a slot over.
func (c *checker) guessed(call *ast.CallExpr) bool {
	switch fn := typeutil.Callee(c.TypesInfo, call).(type) {
	case *types.Func:
		recv := fn.Signature().Recv()
		_, known := c.gives(fn.Origin())
		return !known && recv != nil && types.IsInterface(recv.Type())
	case *types.Var:
		return c.closures[fn] == nil
	}
	return false
}

// handedIn reports whether a slot is taken among the arguments of a call.
func (c *checker) handedIn(call *ast.CallExpr) bool {
	for _, arg := range call.Args {
		if arg, ok := ast.Unparen(arg).(*ast.CallExpr); ok {
			for i := range c.slotsOf(arg) {
				if c.handed(arg, i) {
					return true
				}
			}
		}
	}
	return false
}

// slotsOf yields the indices of the results of an expression that are slots.
func (c *checker) slotsOf(e ast.Expr) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		switch t := c.TypesInfo.TypeOf(e).(type) {
		case nil:
		case *types.Tuple:
			for i := range t.Len() {
				if c.is(t.At(i).Type()) && !yield(i) {
					return
				}
			}
		default:
			if c.is(t) {
				yield(0)
			}
		}
	}
}

// onlyReads reports whether a function does nothing with a slot that it is given but look at it.
func onlyReads(fn types.Object) bool {
	if builtin, ok := fn.(*types.Builtin); ok {
		return builtin.Name() == "print" || builtin.Name() == "println"
	}
	if fn == nil || fn.Pkg() == nil {
		return false
	}
	switch path := fn.Pkg().Path(); path {
	case "fmt", "log", "log/slog", "testing", testifyAssert, testifyRequire:
		return true
	default:
		return path == "runtime" && fn.Name() == "KeepAlive"
	}
}

const (
	testifyAssert  = "github.com/stretchr/testify/assert"
	testifyRequire = "github.com/stretchr/testify/require"
)

// isError reports whether t is an error, which may be one of a certain type.
func isError(t types.Type) bool {
	e, ok := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return ok && types.Implements(t, e)
}

func isBool(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}
