package analyzer

import (
	"cmp"
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A meaning is what a variable says about the slot that is followed.
type meaning uint8

const (
	nothing meaning = iota
	theSlot         // it is the slot; nil: there is none
	failure         // an error; not nil: there is none
	ifTrue          // a bool; true: there is none
	ifFalse         // a bool; false: there is none
	carrier         // a context, or what has one, from which the slot can be taken
	fixed           // a variable that has a constant value
)

// A grant is how sure it is that there is a slot.
type grant uint8

const (
	likely   grant = iota // nothing speaks against it
	doubtful              // what says whether there is one went where it is not followed: nothing is reported
	certain               // the error is nil, or the slot is not
)

// A duty is who sees to the release.
type duty uint8

const (
	open     duty = iota // nobody so far
	shared               // a deferred closure, which may leave it to the caller
	deferred             // a deferred call
)

// A state is what is known on one path. Its slices are replaced when they change and never written.
type state struct {
	taken   bool // the path has come to the taking
	grant   grant
	duty    duty
	defers  token.Pos // of the defer statement behind duty, if that is on the path since the taking
	means   []binding // in order of position
	decided []decision
}

type binding struct {
	v     *types.Var
	m     meaning
	value string // of one that is fixed
}

// A decision is a condition whose outcome is known on the path, until a variable in it is assigned to.
type decision struct {
	condition string
	outcome   bool
}

// key names a state in a block.
func (s *state) key(block int32) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %t %d %d %d", block, s.taken, s.grant, s.duty, s.defers)
	for _, m := range s.means {
		fmt.Fprintf(&b, " %d=%d%s", m.v.Pos(), m.m, m.value)
	}
	for _, d := range s.decided {
		fmt.Fprintf(&b, " %s=%t", d.condition, d.outcome)
	}
	return b.String()
}

func (s *state) meaning(v *types.Var) meaning { return s.binding(v).m }

func (s *state) binding(v *types.Var) binding {
	for _, b := range s.means {
		if b.v == v {
			return b
		}
	}
	return binding{v: v}
}

// doubt notes that it is no longer known whether there is a slot.
func (s *state) doubt() {
	if s.grant != certain {
		s.grant = doubtful
	}
}

// handles returns how many variables hold the slot.
func (s *state) handles() int {
	n := 0
	for _, b := range s.means {
		if b.m == theSlot {
			n++
		}
	}
	return n
}

// set gives a variable that was assigned to its new meaning.
func (s *state) set(v *types.Var, m meaning) { s.bind(binding{v: v, m: m}) }

func (s *state) bind(is binding) {
	s.forget(is.v)
	means := slices.DeleteFunc(slices.Clone(s.means), func(b binding) bool { return b.v == is.v })
	if is.m != nothing {
		means = append(means, is)
		slices.SortFunc(means, func(a, b binding) int { return cmp.Compare(a.v.Pos(), b.v.Pos()) })
	}
	s.means = means
}

// forget drops what was decided by a variable that has changed.
func (s *state) forget(v *types.Var) { s.undecide(mark(v)) }

// undecide drops the conditions of which part is part, and reports whether there were any.
func (s *state) undecide(part string) bool {
	before := len(s.decided)
	s.decided = slices.DeleteFunc(slices.Clone(s.decided), func(d decision) bool {
		return strings.Contains(d.condition, part)
	})
	return len(s.decided) < before
}

// decide notes an outcome. It reports whether the path can be: the condition may have had the other outcome before.
func (s *state) decide(condition string, outcome bool) bool {
	for _, d := range s.decided {
		if d.condition == condition {
			return d.outcome == outcome
		}
	}
	s.decided = append(slices.Clone(s.decided), decision{condition, outcome})
	slices.SortFunc(s.decided, func(a, b decision) int { return cmp.Compare(a.condition, b.condition) })
	return true
}

// mark is how a variable is written in the text of a condition.
func mark(v *types.Var) string { return fmt.Sprintf("<%s@%d>", v.Name(), v.Pos()) }
