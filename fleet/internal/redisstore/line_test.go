package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/store"
)

// heavy asks for need, of which head is for the first waiter, as one that was denied if there is not room for that.
func (e *engine) heavy(id string, granted, head, need int) store.Answer {
	e.t.Helper()
	return e.ask(id, store.Entry{Name: "x", Limit: 24, Have: granted, Need: need, Head: head})
}

// comesBack makes a process one that was denied twice, whose first waiter needs head, with so much granted.
func (e *engine) comesBack(id string, granted, head int) {
	e.t.Helper()
	for range 2 {
		e.step(time.Millisecond)
		require.True(e.t, e.ask(id, store.Entry{Name: "x", Have: granted, Need: max(1, head), Head: head}).Short)
	}
}

// What is of no use is not given: it would only be missing elsewhere.
func TestLessThanHeadIsOfNoUse(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b")
		e.ask("b", store.Entry{Name: "x", Limit: 24, Have: 14})
		require.Equal(e.t, store.Answer{Others: 14, Short: true, Keep: -1}, e.heavy("a", 0, 11, 20))
		e.step(store.Window)
		require.Equal(e.t, store.Answer{Granted: 10, Others: 14, Short: true, Keep: -1}, e.heavy("a", 0, 10, 20))
	})
}

// Where b and c wait who were denied twice, what the first of them needs is left to it.
func TestLine(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(e *engine)
		have   int
		head   int
		need   int
		want   store.Answer
	}{
		{
			"what is left beyond the first", func(e *engine) { e.comesBack("b", 0, 16) }, 2, 1, 9,
			store.Answer{Granted: 8, Short: true, Contended: true, Keep: -1},
		},
		{
			"which is of no use", func(e *engine) { e.comesBack("b", 0, 16) }, 2, 7, 9,
			store.Answer{Granted: 2, Short: true, Contended: true, Keep: -1},
		},
		{
			"also if it has renewed what it has",
			func(e *engine) { e.comesBack("b", 0, 16); e.step(time.Millisecond); e.heavy("b", 0, 0, 0) }, 2, 1, 9,
			store.Answer{Granted: 8, Short: true, Contended: true, Keep: -1},
		},
		{
			"one to whom anything is of use", func(e *engine) { e.comesBack("b", 20, 0); e.waits("a", 3) }, 3, 0, 1,
			store.Answer{Granted: 3, Others: 20, Short: true, Contended: true, Keep: -1},
		},
		{
			"the first is who was denied first", func(e *engine) { e.comesBack("b", 0, 16); e.comesBack("c", 0, 3) }, 2, 1, 9,
			store.Answer{Granted: 8, Short: true, Contended: true, Keep: 8},
		},
		{
			"also of an even smaller ID", func(e *engine) { e.comesBack("c", 0, 16); e.comesBack("b", 0, 3) }, 2, 1, 9,
			store.Answer{Granted: 8, Short: true, Contended: true, Keep: 8},
		},
		{
			"who was denied once is not in line", func(e *engine) { e.heavy("b", 9, 16, 16) }, 2, 1, 9,
			store.Answer{Granted: 11, Others: 9, Contended: true, Keep: -1},
		},
		{
			"the caller waits longer, and may have what it needs above its share",
			func(e *engine) { e.comesBack("a", 2, 16); e.comesBack("b", 0, 16) }, 2, 16, 20,
			store.Answer{Granted: 18, Short: true, First: true, Contended: true, Keep: 12},
		},
		{
			"the caller is denied later", func(e *engine) { e.comesBack("b", 0, 16); e.comesBack("a", 2, 16) }, 2, 16, 20,
			store.Answer{Granted: 2, Short: true, Contended: true, Keep: -1},
		},
		{
			"those who are after it make room", func(e *engine) { e.comesBack("b", 0, 16) }, 12, 1, 1,
			store.Answer{Granted: 12, Short: true, Contended: true, Keep: 8},
		},
		{
			"down to their share in any case", func(e *engine) { e.comesBack("b", 0, 5) }, 20, 1, 1,
			store.Answer{Granted: 20, Short: true, Contended: true, Keep: 12},
		},
		{
			"also when they want nothing", func(e *engine) { e.comesBack("b", 0, 16) }, 12, 0, 0,
			store.Answer{Granted: 12, Contended: true, Keep: 8},
		},
		{
			"and those who are before it do not", func(e *engine) { e.comesBack("a", 12, 13); e.comesBack("b", 0, 16) }, 12, 13, 13,
			store.Answer{Granted: 12, Short: true, First: true, Contended: true, Keep: 12},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *engine) {
				e.learned("a", "b", "c")
				c.before(e)
				e.step(time.Millisecond)
				require.Equal(e.t, c.want, e.heavy("a", c.have, c.head, c.need))
			})
		})
	}
}

// At the same time the smaller ID is first.
func TestLineOfTheSameTime(t *testing.T) {
	onEach(t, func(e *engine) {
		e.learned("a", "b", "c")
		e.ask("c", store.Entry{Name: "x", Limit: 24, Have: 24})
		for range 2 {
			e.step(time.Millisecond)
			require.True(e.t, e.heavy("b", 0, 16, 16).Short)
			require.True(e.t, e.heavy("a", 0, 16, 16).Short)
		}
		e.ask("c", store.Entry{Name: "x", Limit: 24})
		require.True(e.t, e.heavy("b", 0, 16, 16).Short)
		require.False(e.t, e.heavy("a", 0, 16, 16).Short)
	})
}

// One whose first waiter was served is the last in line, though it is still short. So is one that did not come for long.
func TestEndOfTheLine(t *testing.T) {
	for name, happen := range map[string]func(e *engine){
		"served": func(e *engine) {
			e.ask("c", store.Entry{Name: "x", Limit: 24, Have: 23})
			require.Equal(e.t, 1, e.heavy("a", 0, 1, 24).Granted)
			e.ask("c", store.Entry{Name: "x", Limit: 24})
			require.Equal(e.t, 8, e.heavy("a", 1, 1, 23).Granted, "what is left beyond the first")
		},
		"away": func(e *engine) {
			e.step(store.Window - time.Millisecond)
			e.heavy("b", 0, 16, 16)
			e.step(time.Millisecond)
			e.heavy("a", 0, 1, 24)
			e.ask("c", store.Entry{Name: "x", Limit: 24})
			require.Equal(e.t, 8, e.heavy("a", 0, 1, 24).Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(e *engine) {
				e.learned("a", "b", "c")
				e.ask("c", store.Entry{Name: "x", Limit: 24, Have: 24})
				for range 2 {
					e.step(time.Millisecond)
					e.heavy("a", 0, 1, 24)
					e.step(time.Millisecond)
					e.heavy("b", 0, 16, 16)
				}
				happen(e)
				require.False(e.t, e.heavy("b", 0, 16, 16).Short)
			})
		})
	}
}
