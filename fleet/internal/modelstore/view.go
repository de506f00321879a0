package modelstore

import "github.com/inflight-go/inflight/fleet/internal/store"

// A view is what others have of a limit. even is the share of each who has or lacks something, the caller included, and
// fair is the same but not nothing. waiting is how many of those who have less were denied it not long ago and have
// come back, and first is who of all who have come back has waited longest. owed is what those who were denied not long
// ago have less than what is fair, and at least what the first of them needs.
type view struct {
	others, even, fair, owed, waiting int
	first                             *claimant
	contended                         bool
}

// A claimant is a process that was denied something not long ago.
type claimant struct {
	id string
	field
}

// back says that it came back and was denied again.
func (c *claimant) back() bool { return c.since < c.denied }

// earlier says who of two who wait comes first.
func (c *claimant) earlier(than *claimant) bool {
	return c.since < than.since || c.since == than.since && c.id < than.id
}

func (r *call) survey(l *limit, size int) view {
	v := view{}
	claimants := 1
	var lacking []*claimant
	for id, f := range l.fields {
		switch _, alive := r.shard.leases[id]; {
		case id == r.ID:
			continue
		case !alive || r.now-f.written >= r.memory:
			delete(l.fields, id)
			continue
		case r.recent(f.denied):
			c := &claimant{id, f}
			lacking = append(lacking, c)
			claimants++
			if c.back() && (v.first == nil || c.earlier(v.first)) {
				v.first = c
			}
		case f.granted > 0:
			claimants++
		}
		v.others += f.granted
	}
	v.even = size / claimants
	v.fair = max(1, v.even)
	for _, c := range lacking {
		lacks := max(0, v.fair-c.granted)
		if lacks > 0 && c.back() {
			v.waiting++
		}
		if c == v.first {
			lacks = max(lacks, c.head)
		}
		v.owed += lacks
	}
	v.contended = len(lacking) > 0
	return v
}

// ahead returns what is to be left to who has waited longer than the caller, nothing only if nobody has.
func (r *call) ahead(v *view, own *field) int {
	caller := &claimant{id: r.ID, field: field{since: r.now}}
	if r.recent(own.denied) {
		caller.since = own.since
	}
	if v.first != nil && v.first.earlier(caller) {
		return v.first.head
	}
	return 0
}

// grow returns how much is granted, and whether that is short. See lease.lua for who gets what.
func (r *call) grow(v *view, e *store.Entry, denied bool, left int) (granted int, short bool) {
	free := e.Limit - v.others - e.Have
	give := max(0, min(e.Need, free-left))
	due := max(0, v.fair-e.Have)
	switch {
	case !denied:
		due = max(0, min(due, free-v.waiting))
	case left == 0:
		due = max(due, head(e))
	}
	give = max(min(due, give), min(give, free-v.owed))
	if give < head(e) {
		give = 0
	}
	if give < e.Need {
		return e.Have + give, true
	}
	if !denied && !v.contended {
		give += min(e.Slack, (free-give)/(2*r.live))
	}
	return e.Have + give, false
}

// head is the least that is of use.
func head(e *store.Entry) int { return max(1, e.Head) }

// scarce says that little is left. See lease.lua for how much that is.
func (r *call) scarce(v *view, e *store.Entry, granted int) bool {
	return r.live > 1 && e.Limit-v.others-granted < min(e.Limit/2, r.live)
}

// spoken says that what was noted last is a reason to give back what is idle. See lease.lua.
func (r *call) spoken(noted int64, own *field, e *store.Entry, last bool) bool {
	heard := r.now
	switch {
	case e.Need > 0 && last:
		heard = r.now - r.ttl
	case e.Need == 0 && own.written > 0:
		heard = own.written
	}
	return noted > heard && noted <= r.now
}

func (v *view) keep(e *store.Entry, granted, rest, left int) int {
	most := -1
	switch {
	case rest < 0:
		return 0
	case v.owed > rest && e.Need == 0:
		most = v.even
	case v.owed > rest:
		most = v.fair
	}
	if left > rest {
		room := max(0, granted-(left-rest))
		if most < 0 || room < most {
			most = room
		}
	}
	return most
}
