package inflight

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// An Option changes one acquire. It is a value: it may be kept and used again, by many goroutines.
type Option struct {
	kind   optionKind
	n      int64
	text   string
	method string
	keys   []Key
}

type optionKind uint8

const (
	optionNone optionKind = iota // the zero Option changes nothing
	optionWeight
	optionLabel
	optionAlso
	optionMaxWait
)

// Weight sets how many units of the limits the slot takes up. The default is 1. A weight of 0 is allowed and is
// refused only by a limit that is negative or already exceeded. A negative weight is an error.
func Weight(n int) Option { return Option{kind: optionWeight, n: int64(n)} }

// Label names the slot for people: a request id or the like. It is shown in logs, in Slots and Waiters, and never
// becomes a metric label.
func Label(s string) Option { return Option{kind: optionLabel, text: s} }

// labelRequest is Label(method + " " + path), put together only when somebody reads it.
func labelRequest(r *http.Request) Option {
	return Option{kind: optionLabel, method: r.Method, text: r.URL.Path}
}

// Also makes the slot count against these keys too, with their orgs and models: all have room, or none is taken.
// What several of them have in common, such as the total, counts once. Naming a key twice changes nothing. A slice given
// as k... must not be changed as long as the option is used.
func Also(k ...Key) Option { return Option{kind: optionAlso, keys: k} }

// MaxWait bounds the wait of Acquire, besides its context. Zero or less means do not wait: Acquire is then as
// TryAcquire. TryAcquire never waits and ignores it. Without MaxWait only the context bounds the wait.
func MaxWait(d time.Duration) Option { return Option{kind: optionMaxWait, n: int64(d)} }

// A request is an acquire that has not been decided.
type request struct {
	key    Key
	others []Key // the keys of Also, distinct, and none is key

	claim       // its gates are known once opened, before that only that of key, as it was last seen
	opened bool // whether it counts at its gates, as a holder or waiter

	label  string
	method method // goes before label

	stack []uintptr // of whoever asks, nil unless Config.CaptureStack is set

	bounded bool // whether maxWait bounds the wait
	maxWait time.Duration

	limits       byScope
	othersLimits []byScope
}

func (q *request) init(k Key, opts []Option) error {
	q.key, q.weight = k, 1
	for i := range opts {
		o := &opts[i]
		switch o.kind {
		case optionNone:
		case optionWeight:
			if o.n < 0 {
				return fmt.Errorf("inflight: Weight(%d) of %v: must not be negative", o.n, k)
			}
			q.weight = int(o.n)
		case optionLabel:
			var known bool
			if q.method, known = methodOf(o.method); known {
				q.label = o.text
			} else {
				q.label = o.method + " " + o.text
			}
		case optionAlso:
			for _, a := range o.keys {
				if a != k && !slices.Contains(q.others, a) {
					q.others = append(q.others, a)
				}
			}
		case optionMaxWait:
			q.bounded, q.maxWait = true, time.Duration(o.n)
		}
	}
	return nil
}

// readLimits calls the limit function, which is user code: never under the lock.
func (q *request) readLimits(limits LimitFunc) {
	q.limits = limits(q.key).byScope()
	q.othersLimits = q.othersLimits[:0]
	for _, k := range q.others {
		q.othersLimits = append(q.othersLimits, limits(k).byScope())
	}
}

// keys is how many keys the request names, and at gives each with its limits, the main key first.
func (q *request) keys() int { return 1 + len(q.others) }

func (q *request) at(i int) (Key, *byScope) {
	if i == 0 {
		return q.key, &q.limits
	}
	return q.others[i-1], &q.othersLimits[i-1]
}

// A method is an HTTP method as its place in verbs plus one; 0 is none. It keeps the default label of a slot from
// being put together on each request.
type method uint8

const verbs = "GET POST HEAD PUT PATCH DELETE OPTIONS CONNECT "

// methodOf reports false for a method that is not in verbs.
func methodOf(s string) (method, bool) {
	i := strings.Index(verbs, s)
	if s == "" || i < 0 || i > 0 && verbs[i-1] != ' ' || verbs[i+len(s)] != ' ' {
		return 0, s == ""
	}
	return method(i + 1), true //nolint:gosec // verbs is far shorter than 255
}

// before returns the label of a slot: the text with the method before it, if there is one.
func (m method) before(text string) string {
	if m == 0 {
		return text
	}
	verb, _, _ := strings.Cut(verbs[m-1:], " ")
	return verb + " " + text
}
