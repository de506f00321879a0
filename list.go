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

// first returns the front of a list without bookmarks, nil if it is empty.
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

// after returns the place of what follows e, bookmarks left out, or the root if nothing does.
func (l *list[T]) after(e *elem[T]) *elem[T] {
	at := e.next
	for at.of == nil && at != &l.root {
		at = at.next
	}
	return at
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
type spares[T any] struct {
	idle []*T
	out  int // how many are in use
}

const keep = 4096

// take returns a spare value, nil if there is none. The caller then makes one; when that comes back there is room for it,
// so that to give back never allocates.
func (s *spares[T]) take() *T {
	s.out++
	n := len(s.idle) - 1
	if n < 0 {
		if s.out > cap(s.idle) && s.out <= keep {
			s.idle = slices.Grow(s.idle, s.out)
		}
		return nil
	}
	v := s.idle[n]
	s.idle = s.idle[:n]
	return v
}

// put keeps v, or else empties it: what is not kept must not hold on to others that are not.
func (s *spares[T]) put(v *T) {
	s.out--
	switch n := len(s.idle); {
	case n >= min(cap(s.idle), keep):
		*v = *new(T)
	case s.idle[:n+1][n] == v:
		s.idle = s.idle[:n+1] // its pointer is still there: as in insertAfter, better not written again
	default:
		s.idle = append(s.idle, v)
	}
}
