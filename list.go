package inflight

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
	e.prev, e.next = at, at.next
	e.prev.next, e.next.prev = e, e
}

func (e *elem[T]) remove() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// moveAfter moves e, listed already, behind at.
func (e *elem[T]) moveAfter(at *elem[T]) {
	e.remove()
	e.insertAfter(at)
}
