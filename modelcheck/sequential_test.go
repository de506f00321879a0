package modelcheck_test

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/inflight-go/inflight"
)

// sequential is a registry as one goroutine would use it.
var sequential = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, output any) (bool, any) {
		h, _ := state.(held)
		c, _ := input.(call)
		a, _ := output.(answer)
		return h.step(c, a)
	},
	Equal: func(state, other any) bool {
		a, _ := state.(held)
		b, _ := other.(held)
		return a.equal(b)
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v → %+v", input, output)
	},
}

// held are the live slots. Values of it share nothing that changes.
type held struct {
	lastID uint64
	slots  []heldSlot // in the order of their IDs
}

type heldSlot struct {
	ask

	id uint64
}

func (h held) equal(other held) bool {
	same := func(a, b heldSlot) bool { return a.id == b.id } // what an ID stands for never changes
	return h.lastID == other.lastID && slices.EqualFunc(h.slots, other.slots, same)
}

// step says whether the registry could have answered so, and what it is like afterwards.
func (h held) step(c call, a answer) (bool, held) {
	switch c.kind {
	case "try":
		want := ask{keys: c.keys, weight: c.weight}
		if e, refused := h.refusal(&want); refused || a.id == 0 {
			return refused && a.id == 0 && e == a.refused, h
		}
		next := held{lastID: a.id, slots: append(slices.Clone(h.slots), heldSlot{ask: want, id: a.id})}
		return a.id > h.lastID, next // IDs tell the order of the grants
	case "release":
		_, next := h.without(c.id)
		return true, next
	case "evict":
		live, next := h.without(c.id)
		return live == a.evicted, next
	case "in use":
		return a.inUse == h.inUse(place{inflight.ScopeKey, c.keys[0]}), h
	default: // stats
		live := map[inflight.Key]bool{}
		for _, s := range h.slots {
			for _, k := range s.keys {
				live[k] = true
			}
		}
		total := h.inUse(place{scope: inflight.ScopeTotal})
		return a.inUse == total && a.holders == len(h.slots) && a.keys == len(live), h
	}
}

func (h held) without(id uint64) (live bool, rest held) {
	rest = held{lastID: h.lastID, slots: slices.DeleteFunc(slices.Clone(h.slots), func(s heldSlot) bool { return s.id == id })}
	return len(rest.slots) < len(h.slots), rest
}

func (h held) inUse(p place) int {
	n := 0
	for _, s := range h.slots {
		if s.counts(p) {
			n += s.weight
		}
	}
	return n
}

// refusal is the first limit of an ask that has no room.
func (h held) refusal(want *ask) (inflight.LimitError, bool) {
	for range want.keys {
		want.limits = append(want.limits, narrow)
	}
	for i, k := range want.keys {
		for _, p := range placesOf(k) {
			if n := h.inUse(p); n+want.weight > want.limitAt(i, p.scope) {
				return inflight.LimitError{Key: k, Scope: p.scope, InUse: n}, true
			}
		}
	}
	return inflight.LimitError{}, false
}
