package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inflight-go/inflight"
)

// A soakPlan travels with a request, past the gateway, to the model server and tells it what to do.
type soakPlan struct {
	ID     uint64        `json:"id"`
	Org    string        `json:"org"`
	Late   time.Duration `json:"late"` // before the head
	Events int           `json:"events"`
	Pause  time.Duration `json:"pause"` // between events
	Size   int           `json:"size"`  // of an event
	Cut    bool          `json:"cut"`   // break off in the end
}

// A countingModel is a model server that counts who is in flight, by itself: each request from when it comes here to
// when it ends, or when its client begins to leave, whichever is first. For all of that time the gateway must have it in
// a slot. It looks at the limits whenever a request comes.
type countingModel struct {
	mu     sync.Mutex
	known  map[uint64]*visit
	live   map[place]int
	peak   int
	eras   []era
	faults []string
}

// A visit is a request whose client is still there.
type visit struct {
	key     inflight.Key
	counted bool
	left    bool // it may have lost its slot
	struck  bool // by the operator
}

// A place is where a limit counts.
type place struct {
	scope inflight.Scope
	key   inflight.Key
}

// An era is the time for which limits were in force.
type era struct {
	limits *inflight.LimitTable
	ended  time.Time // zero for the last one
}

// over reports whether these limits can no longer admit anybody.
func (e era) over() bool { return !e.ended.IsZero() && time.Since(e.ended) > soakGrace }

func newCountingModel() *countingModel {
	return &countingModel{known: make(map[uint64]*visit), live: make(map[place]int)}
}

// limit says that these limits are about to be in force.
func (m *countingModel) limit(limits *inflight.LimitTable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.eras); n > 0 {
		m.eras[n-1].ended = time.Now()
	}
	m.eras = slices.DeleteFunc(m.eras, era.over)
	m.eras = append(m.eras, era{limits: limits})
}

// expect says that a request is on its way.
func (m *countingModel) expect(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[id] = &visit{}
}

// arrived counts a request, unless it has begun to leave.
func (m *countingModel) arrived(id uint64, k inflight.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.known[id]
	if v == nil || v.left {
		return
	}
	v.key, v.counted = k, true
	for _, p := range placesOf(k) {
		m.live[p]++
		if limit := m.limitAt(p.scope, k); m.live[p] > limit {
			m.faultLocked(fmt.Sprintf("%d in flight at the %v limit of %v, which is %d", m.live[p], p.scope, k, limit))
		}
	}
	m.peak = max(m.peak, m.live[place{scope: inflight.ScopeTotal}])
}

// leaves says that a request may have lost its slot from now on. It may be said more than once.
func (m *countingModel) leaves(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leavesLocked(id)
}

func (m *countingModel) leavesLocked(id uint64) {
	v := m.known[id]
	if v == nil || v.left {
		return
	}
	v.left = true
	if !v.counted {
		return
	}
	for _, p := range placesOf(v.key) {
		if m.live[p]--; m.live[p] == 0 {
			delete(m.live, p)
		}
	}
}

// strike says that the operator is about to end a request.
func (m *countingModel) strike(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leavesLocked(id)
	if v := m.known[id]; v != nil {
		v.struck = true
	}
}

// struck reports whether the operator has ended a request.
func (m *countingModel) struck(id uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[id].struck
}

// ended says that the client of a request is gone.
func (m *countingModel) ended(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leavesLocked(id)
	delete(m.known, id)
}

func placesOf(k inflight.Key) [4]place {
	return [...]place{
		{inflight.ScopeKey, k},
		{inflight.ScopeOrg, inflight.Key{Org: k.Org}},
		{inflight.ScopeModel, inflight.Key{Model: k.Model}},
		{inflight.ScopeTotal, inflight.Key{}},
	}
}

// limitAt returns the highest limit that may still be in force.
func (m *countingModel) limitAt(scope inflight.Scope, k inflight.Key) int {
	highest := inflight.Blocked
	for _, e := range m.eras {
		if e.over() {
			continue
		}
		l := e.limits.Limits(k)
		limit := [...]int{l.Key, l.Org, l.Model, l.Total}[scope]
		if limit == 0 {
			limit = math.MaxInt
		}
		highest = max(highest, limit)
	}
	return highest
}

func (m *countingModel) fault(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faultLocked(what)
}

func (m *countingModel) faultLocked(what string) {
	if len(m.faults) < 10 {
		m.faults = append(m.faults, what)
	}
}

func (m *countingModel) failed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.faults) > 0
}

func (m *countingModel) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.live) == 0 && len(m.known) == 0
}

// ServeHTTP answers by plan.
func (m *countingModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model string
		Soak  soakPlan
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &q)
	}
	if err != nil {
		if r.Context().Err() == nil {
			m.fault("a request that is not whole came through: " + err.Error())
		}
		panic(http.ErrAbortHandler)
	}
	p := q.Soak
	m.arrived(p.ID, inflight.Key{Org: p.Org, Model: q.Model})
	defer m.leaves(p.ID)

	pause(r, p.Late)
	w.Header().Set("Content-Type", "text/event-stream")
	event := "data: " + strings.Repeat("x", p.Size) + "\n\n"
	for range p.Events {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		pause(r, p.Pause)
	}
	if p.Cut {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, soakDone)
}

const soakDone = "data: [DONE]\n\n"
