package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/inflight-go/inflight"
)

// A snapshot is a look at a registry. Its parts are taken one after another, so under load they differ by a moment.
type snapshot struct {
	began   time.Time // when stats was taken
	at      time.Time // when all was
	stats   inflight.Stats
	keys    []inflight.KeyInfo // by utilisation
	waiters []inflight.WaiterInfo
	oldest  []inflight.SlotInfo
	all     func() []inflight.SlotInfo // looks when first asked, unless oldest has them all
}

// look takes a snapshot that has so many of the oldest slots at hand.
func look(reg *inflight.Registry, oldest int) *snapshot {
	s := &snapshot{began: time.Now(), stats: reg.Stats()}
	s.keys, s.waiters, s.oldest = byUtilisation(reg), reg.Waiters(0), reg.Slots(oldest)
	s.all = sync.OnceValue(func() []inflight.SlotInfo {
		if len(s.oldest) < oldest {
			return s.oldest
		}
		return reg.Slots(0)
	})
	s.at = time.Now() // after all that it shows, so that no age is negative
	return s
}

// byUtilisation returns all keys, those nearest to their limit first.
func byUtilisation(reg *inflight.Registry) []inflight.KeyInfo {
	keys := reg.Keys(0) // busiest first, then by waiters and name
	slices.SortStableFunc(keys, func(a, b inflight.KeyInfo) int { return cmp.Compare(utilisation(b), utilisation(a)) })
	return keys
}

// slots lists the holders that are asked for, oldest first.
func (s *snapshot) slots(q query) list[inflight.SlotInfo] {
	if q.filter == (filter{}) && q.limit <= len(s.oldest) {
		return narrow(s.oldest, s.stats.Holders, q, q.matchSlot)
	}
	return narrow(s.all(), 0, q, q.matchSlot)
}

func (s *snapshot) listWaiters(q query) list[inflight.WaiterInfo] {
	return narrow(s.waiters, 0, q, func(w inflight.WaiterInfo) bool { return q.match(w.Label, w.Key) })
}

func (s *snapshot) listKeys(q query) list[inflight.KeyInfo] {
	return narrow(s.keys, 0, q, func(k inflight.KeyInfo) bool { return q.match("", k.Key) })
}

// narrow lists the first of those that match. Without a filter, those that were left off from the list beforehand count
// as well.
func narrow[T any](from []T, total int, q query, match func(T) bool) list[T] {
	l := list[T]{Total: max(total, len(from)), Items: []T{}}
	if q.filter == (filter{}) {
		l.Matched, l.Items = l.Total, from[:min(q.limit, len(from))]
	} else {
		for _, item := range from {
			if !match(item) {
				continue
			}
			if l.Matched++; l.Matched <= q.limit {
				l.Items = append(l.Items, item)
			}
		}
	}
	l.More = l.Matched - len(l.Items)
	return l
}

func (f filter) matchSlot(s inflight.SlotInfo) bool {
	switch f.state {
	case stateLong:
		if !s.LongHeld {
			return false
		}
	case stateLost:
		if !s.Lost {
			return false
		}
	}
	if f.terms != "" && f.terms == strconv.FormatUint(s.ID, 10) {
		return true
	}
	return f.match(s.Label, append([]inflight.Key{s.Key}, s.Also...)...)
}

// match reports whether all terms are found in what is shown of the label and the keys, and whether one of these is
// shown as the key asked for.
func (f filter) match(label string, keys ...inflight.Key) bool {
	named := func(k inflight.Key) bool {
		return (!f.hasOrg || shown(k.Org) == f.org) && (!f.hasModel || shown(k.Model) == f.model)
	}
	if !slices.ContainsFunc(keys, named) {
		return false
	}
	if f.terms == "" {
		return true
	}
	texts := []string{shown(label)}
	for _, k := range keys {
		k = inflight.Key(viewKey(k))
		texts = append(texts, k.Org, k.Model, k.String())
	}
	text := strings.ToLower(strings.Join(texts, "\n"))
	for term := range strings.SplitSeq(f.terms, " ") {
		if !strings.Contains(text, term) {
			return false
		}
	}
	return true
}

// mapList changes what is listed.
func mapList[T, V any](l list[T], view func(T) V) list[V] {
	items := make([]V, len(l.Items))
	for i, item := range l.Items {
		items[i] = view(item)
	}
	return list[V]{Total: l.Total, Matched: l.Matched, More: l.More, Items: items}
}

func (s *snapshot) viewWaiters(q query) list[waiterView] {
	return mapList(s.listWaiters(q), func(w inflight.WaiterInfo) waiterView { return viewWaiter(w, s.at) })
}
