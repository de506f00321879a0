package inflight

import "slices"

// A list is a doubly linked list whose links lie in what it lists, so that entering and leaving allocate nothing and
// cost the same from any place. It must not be copied and wants init before use.
type list[T any] struct{ root elem[T] }

// An elem is a place in a list. One whose of is nil is a bookmark: it keeps a place while others come and go.
type elem[T any] struct {
	prev, next *elem[T]
	of         *T
}

func (l *list[T]) init() { l.root.prev, l.root.next = &l.root, &l.root }

// first returns the front of the list, nil if it is empty.
func (l *list[T]) first() *T { return l.root.next.of }

func (l *list[T]) push(e *elem[T]) { e.insertAfter(l.root.prev) }

// all yields what is listed, front to back. What is yielded may leave the list meanwhile, what follows it may not.
func (l *list[T]) all(yield func(*T) bool) {
	for e := l.root.next; e != &l.root; {
		next := e.next
		if e.of != nil && !yield(e.of) {
			return
		}
		e = next
	}
}

func (e *elem[T]) insertAfter(at *elem[T]) {
	// What is used again often has the right neighbours already, and to compare costs less than to write a pointer
	// while the garbage collector is at work.
	next := at.next
	if e.prev != at {
		e.prev = at
	}
	if e.next != next {
		e.next = next
	}
	at.next, next.prev = e, e
}

func (e *elem[T]) remove() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// moveAfter moves e, listed already, behind at.
func (e *elem[T]) moveAfter(at *elem[T]) {
	e.remove()
	e.insertAfter(at)
}

// spares are values kept to be used again, at most keep of them, so that a burst does not cost memory for ever.
type spares[T any] []*T

const keep = 4096

// take returns a spare value, nil if there is none.
func (s *spares[T]) take() *T {
	n := len(*s) - 1
	if n < 0 {
		return nil
	}
	v := (*s)[n]
	*s = (*s)[:n]
	return v
}

// room makes sure that the next puts, up to n spares in all, do not allocate.
func (s *spares[T]) room(n int) {
	if n > cap(*s) && n <= keep {
		*s = slices.Grow(*s, n-len(*s))
	}
}

func (s *spares[T]) put(v *T) {
	switch n := len(*s); {
	case n < cap(*s) && (*s)[:n+1][n] == v:
		*s = (*s)[:n+1] // its pointer is still there: as in insertAfter, better not written again
	case n < keep:
		*s = append(*s, v)
	}
}
