package inflight

import "runtime"

// Batches are how many a walk visits before it gives up the lock for a moment: such that the lock is held for some tens
// of microseconds, whoever waits for it is not held up longer, and a walk does not itself wait too often.
const (
	quickBatch  = 1024 // to look at each
	batch       = 128  // to describe each
	slowerBatch = 32   // to have the garbage collector watch each
)

// walk visits what is listed, under the lock, front to back, until visit returns false. The lock is given up between
// two batches, and settle is called then, and at the end, without it; settle may be nil.
func walk[T any](r *Registry, l *list[T], batch int, settle func(), visit func(*T) bool) {
	var mark elem[T]
	r.mu.Lock()
	mark.insertAfter(&l.root)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		mark.remove()
		r.mu.Unlock()
	}()
	advance(r, l, &mark, batch, settle, visit)
}

// advance is as walk, from a bookmark on. It leaves the bookmark behind the last one for which visit returned true.
func advance[T any](r *Registry, l *list[T], mark *elem[T], batch int, settle func(), visit func(*T) bool) {
	for more := true; more; {
		r.mu.Lock()
		for n := 0; more && n < batch; n++ {
			at := l.after(mark)
			if more = at.of != nil && visit(at.of); more {
				mark.moveAfter(at)
			}
		}
		r.mu.Unlock()
		if settle != nil {
			settle()
		}
		if more {
			runtime.Gosched() // to whoever waits for the lock
		}
	}
}

// A pile is what a walk finds. Under the lock it grows by a batch at most; only settle, outside the lock, moves much
// memory.
type pile[T any] struct {
	all   []T
	fresh []T
}

// add returns how many there are now. It needs the lock no more than what it adds does.
func (p *pile[T]) add(v T) int {
	p.fresh = append(p.fresh, v)
	return len(p.all) + len(p.fresh)
}

func (p *pile[T]) settle() {
	p.all = append(p.all, p.fresh...)
	p.fresh = p.fresh[:0]
}
