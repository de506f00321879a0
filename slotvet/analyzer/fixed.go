package analyzer

import (
	"go/ast"
	"go/constant"
	"go/types"
	"strings"
)

// start returns the state in which a function begins: its named results are zero.
func (w *walk) start() state {
	var s state
	for v := range w.f.results.Variables() {
		if w.isAsked(v) {
			s.bind(binding{v, fixed, zero(v.Type())})
		}
	}
	return s
}

// fix notes which variables have a constant value behind n. That is how one keeps in mind whether there is a slot:
// held := false.
func (w *walk) fix(n ast.Node, s, before *state) {
	lhs, rhs := sides(n)
	_, declared := n.(*ast.ValueSpec)
	for i, l := range lhs {
		v := w.variable(l)
		if v == nil || s.meaning(v) != nothing || !w.isAsked(v) {
			continue
		}
		value := ""
		switch {
		case len(rhs) == 0 && declared:
			value = zero(v.Type())
		case len(rhs) == len(lhs) && (!types.IsInterface(v.Type()) || w.isNil(rhs[i])):
			value = w.valueOf(rhs[i], before)
		}
		if value != "" {
			s.bind(binding{v, fixed, value})
		}
	}
}

// isAsked reports whether a local variable is part of a condition, and only changes by assignments on the path.
func (w *walk) isAsked(v *types.Var) bool {
	asked, known := w.f.asked[v]
	if !known && w.f.owns(v) {
		for condition := range w.conditions() {
			asked = asked || strings.Contains(condition, mark(v))
		}
		w.f.asked[v] = asked
	}
	return asked
}

// valueOf returns the constant value of an expression, empty if it has none.
func (w *walk) valueOf(e ast.Expr, s *state) string {
	if v := w.variable(e); v != nil {
		return s.binding(v).value
	}
	t := w.TypesInfo.Types[e]
	switch {
	case t.IsNil():
		return "nil"
	case t.Value != nil:
		return t.Value.ExactString()
	}
	return ""
}

func zero(t types.Type) string {
	switch t := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case t.Info()&types.IsBoolean != 0:
			return constant.MakeBool(false).ExactString()
		case t.Info()&types.IsNumeric != 0:
			return constant.MakeInt64(0).ExactString()
		case t.Info()&types.IsString != 0:
			return constant.MakeString("").ExactString()
		}
	case *types.Array, *types.Struct:
		return ""
	}
	return "nil"
}
