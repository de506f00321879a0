package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/inflight-go/inflight"
)

// overview answers GET api/overview.
func (h *handler) overview(r *http.Request) (any, error) {
	_, err := parse(r)
	return h.viewOverview(h.registry.Stats(), time.Now()), err
}

// history answers GET api/history.
func (h *handler) history(r *http.Request) (any, error) {
	_, err := parse(r)
	return h.feed.history(), err
}

// keys answers GET api/keys.
func (h *handler) keys(r *http.Request) (any, error) {
	q, err := parseQuery(r, "q", "org", "model", "limit")
	if err != nil {
		return nil, err
	}
	s := snapshot{keys: byUtilisation(h.registry)}
	return mapList(s.listKeys(q), viewUsage), nil
}

// waiters answers GET api/waiters.
func (h *handler) waiters(r *http.Request) (any, error) {
	q, err := parseQuery(r, "q", "org", "model", "limit")
	if err != nil {
		return nil, err
	}
	s := snapshot{waiters: h.registry.Waiters(0), at: time.Now()}
	return s.viewWaiters(q), nil
}

// slots answers GET api/slots.
func (h *handler) slots(r *http.Request) (any, error) {
	q, err := parseQuery(r, "q", "org", "model", "state", "limit")
	if err != nil {
		return nil, err
	}
	return mapList(look(h.registry, q.limit).slots(q), viewSlot), nil
}

// slot answers GET api/slots/{id}: the one place with the stack.
func (h *handler) slot(r *http.Request) (any, error) {
	values, err := parse(r, "instance")
	if err != nil {
		return nil, err
	}
	info, err := h.find(r, values)
	v := viewSlot(info)
	v.Stack = info.Stack
	return v, err
}

// find returns the slot that the path names, unless the parameters say that another process gave it that number.
func (h *handler) find(r *http.Request, values url.Values) (inflight.SlotInfo, error) {
	if values.Has("instance") && values.Get("instance") != h.instance {
		return inflight.SlotInfo{}, errElsewhere
	}
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return inflight.SlotInfo{}, badRequest("A slot is named by its number.")
	}
	for _, s := range h.registry.Slots(0) {
		if s.ID == id {
			return s, nil
		}
	}
	return inflight.SlotInfo{}, errGone
}

// limits answers GET api/limits in the JSON form of a LimitTable.
func (h *handler) limits(r *http.Request) (any, error) {
	_, err := parse(r)
	if err == nil && h.cfg.Table == nil {
		err = errNoTable
	}
	return h.cfg.Table, err
}

// state answers GET api/state: what an event says, once.
func (h *handler) state(r *http.Request) (any, error) {
	q, err := parseQuery(r, "q", "org", "model", "state")
	if err != nil {
		return nil, err
	}
	return h.viewState(look(h.registry, maxShown), q.filter), nil
}

// encodeState makes the JSON of an event.
func (h *handler) encodeState(s *snapshot, newest *sample, by filter) []byte {
	v := h.viewState(s, by)
	v.Sample = newest
	return encode(v)
}

// maxKeysShown is how many keys the page lists. The rest is further from its limits.
const maxKeysShown = 100

// A stateView is all that the page shows at a time.
type stateView struct {
	Overview overviewView     `json:"overview"`
	Sample   *sample          `json:"sample,omitempty"` // what is new in the history
	Keys     list[usageView]  `json:"keys"`
	Slots    list[slotView]   `json:"slots"`
	Waiters  list[waiterView] `json:"waiters"`
}

func (h *handler) viewState(s *snapshot, by filter) stateView {
	q := query{filter: by, limit: maxShown}
	return stateView{
		Overview: h.viewOverview(s.stats, s.at),
		Keys:     mapList(s.listKeys(query{filter: by, limit: maxKeysShown}), viewUsage),
		Slots:    mapList(s.slots(q), viewSlot),
		Waiters:  s.viewWaiters(q),
	}
}
