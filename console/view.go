package console

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/inflight-go/inflight"
)

// The shapes of the API. README.md documents them; fields may be added, but none changes or goes.
type (
	keyView struct {
		Org   string `json:"org"`
		Model string `json:"model"`
	}
	slotView struct {
		ID          string    `json:"id"` // a string, since JavaScript's numbers end at 2^53
		Key         keyView   `json:"key"`
		Also        []keyView `json:"also,omitempty"`
		Label       string    `json:"label"`
		Weight      int       `json:"weight"`
		AcquiredAt  time.Time `json:"acquired_at"`
		HeldSeconds float64   `json:"held_seconds"`
		LongHeld    bool      `json:"long_held"`
		Lost        bool      `json:"lost"`
		HasStack    bool      `json:"has_stack"`
		Stack       string    `json:"stack,omitempty"` // only where one slot is asked for
	}
	waiterView struct {
		Key           keyView   `json:"key"`
		Label         string    `json:"label"`
		Weight        int       `json:"weight"`
		Since         time.Time `json:"since"`
		WaitedSeconds float64   `json:"waited_seconds"`
		Blocked       string    `json:"blocked"` // the scope of the limit
	}
	usageView struct {
		Key         keyView   `json:"key"`
		InUse       int       `json:"in_use"`
		Limit       limitView `json:"limit"`
		Utilisation *float64  `json:"utilisation"` // null if there is no limit to be near to
		Holders     int       `json:"holders"`
		Waiters     int       `json:"waiters"`

		Leased *leaseView `json:"leased,omitempty"` // only where the limit is shared with other processes
	}
	leaseView struct {
		Granted   int `json:"granted"`   // here
		Elsewhere int `json:"elsewhere"` // when that was last known
	}

	// A list is the first of those that match.
	list[T any] struct {
		Total   int `json:"total"`   // that there are
		Matched int `json:"matched"` // that were asked for
		More    int `json:"more"`    // of those, how many are not listed
		Items   []T `json:"items"`
	}

	overviewView struct {
		Registry string    `json:"registry"`
		Instance string    `json:"instance"`
		At       time.Time `json:"at"`
		Admin    bool      `json:"admin"`
		Table    bool      `json:"limit_table"`

		InUse         int     `json:"in_use"`
		Holders       int     `json:"holders"`
		Keys          int     `json:"keys"`
		Waiters       int     `json:"waiters"`
		LongHeld      int     `json:"long_held"`
		Lost          int     `json:"lost"`
		MaxPerKey     int     `json:"max_per_key"`
		OldestSeconds float64 `json:"oldest_seconds"`

		Peak       peakView `json:"peak"`
		RecentPeak peakView `json:"recent_peak"`

		Admitted  uint64                  `json:"admitted_total"`
		Released  uint64                  `json:"released_total"`
		Evicted   uint64                  `json:"evicted_total"`
		Reclaimed uint64                  `json:"reclaimed_total"`
		WasLost   uint64                  `json:"lost_total"`
		Waited    uint64                  `json:"waited_total"`
		Canceled  uint64                  `json:"canceled_total"`
		Closed    uint64                  `json:"closed_total"`
		Refused   uint64                  `json:"rejected_total"`
		Rejected  map[string]rejectedView `json:"rejected"` // by scope

		Sweeps    uint64     `json:"sweeps_total"`
		LastSweep *time.Time `json:"last_sweep"` // null before the first
	}
	peakView struct {
		InUse  int `json:"in_use"`
		PerKey int `json:"per_key"`
	}
	rejectedView struct {
		Full      uint64 `json:"full"`
		TooHeavy  uint64 `json:"too_heavy"`
		TimedOut  uint64 `json:"timed_out"`
		QueueFull uint64 `json:"queue_full"`
	}
)

// A limitView is a limit in the words of a LimitTable's JSON; null if it could not be read.
type limitView int

func (n limitView) MarshalJSON() ([]byte, error) {
	switch {
	case n == 0:
		return []byte("null"), nil
	case n > 0 && n != inflight.Unlimited:
		return strconv.AppendInt(nil, int64(n), 10), nil
	}
	return json.Marshal(n.String())
}

func (n limitView) String() string {
	switch {
	case n == 0:
		return "?"
	case n < 0:
		return "blocked"
	case n == inflight.Unlimited:
		return "unlimited"
	}
	return strconv.Itoa(int(n))
}

func (h *handler) viewOverview(s inflight.Stats, at time.Time) overviewView {
	v := overviewView{
		Registry: h.registry.Name(), Instance: h.instance, At: at, Admin: h.cfg.Admin, Table: h.cfg.Table != nil,
		InUse: s.InUse, Holders: s.Holders, Keys: s.Keys, Waiters: s.Waiters, LongHeld: s.LongHeld, Lost: s.LostHeld,
		MaxPerKey: s.MaxPerKey, OldestSeconds: seconds(s.OldestHeld),
		Peak: peakView{s.PeakInUse, s.PeakPerKey}, RecentPeak: peakView{s.RecentPeakInUse, s.RecentPeakPerKey},
		Admitted: s.Admitted, Released: s.Released, Evicted: s.Evicted, Reclaimed: s.Reclaimed, WasLost: s.Lost,
		Waited: s.Waited, Canceled: s.Canceled, Closed: s.Closed, Refused: s.RejectedTotal(),
		Rejected: make(map[string]rejectedView, len(s.Rejected)), Sweeps: s.Sweeps,
	}
	for scope, n := range s.Rejected {
		v.Rejected[inflight.Scope(scope).String()] = rejectedView(n)
	}
	if !s.LastSweep.IsZero() {
		v.LastSweep = &s.LastSweep
	}
	return v
}

func viewKey(k inflight.Key) keyView { return keyView{shown(k.Org), shown(k.Model)} }

func viewSlot(s inflight.SlotInfo) slotView {
	v := slotView{
		ID: strconv.FormatUint(s.ID, 10), Key: viewKey(s.Key), Label: shown(s.Label), Weight: s.Weight,
		AcquiredAt: s.AcquiredAt, HeldSeconds: seconds(s.Held), LongHeld: s.LongHeld, Lost: s.Lost, HasStack: s.Stack != "",
	}
	for _, k := range s.Also {
		v.Also = append(v.Also, viewKey(k))
	}
	return v
}

func viewWaiter(w inflight.WaiterInfo, now time.Time) waiterView {
	return waiterView{
		Key: viewKey(w.Key), Label: shown(w.Label), Weight: w.Weight,
		Since: w.Since, WaitedSeconds: seconds(now.Sub(w.Since)), Blocked: w.Blocked.String(),
	}
}

func viewUsage(k inflight.KeyInfo) usageView {
	v := usageView{
		Key: viewKey(k.Key), InUse: k.InUse, Limit: limitView(k.Limit), Holders: k.Holders, Waiters: k.Waiters,
	}
	if k.Limit > 0 && k.Limit != inflight.Unlimited {
		u := utilisation(k)
		v.Utilisation = &u
	}
	if isLeased(k) {
		v.Leased = &leaseView{Granted: k.Granted, Elsewhere: k.Elsewhere}
	}
	return v
}

// isLeased says whether it means something what is granted of a limit: of none, nothing has to be.
func isLeased(k inflight.KeyInfo) bool { return k.Leased && k.Limit != inflight.Unlimited }

// utilisation returns which part of its limit a key uses: 1 at the limit, more above a lowered one, 0 without one,
// infinite above one that admits nothing.
func utilisation(k inflight.KeyInfo) float64 {
	switch {
	case k.Limit == inflight.Unlimited || k.InUse == 0:
		return 0
	case k.Limit <= 0:
		return math.Inf(1)
	}
	return float64(k.InUse) / float64(k.Limit)
}

// seconds rounds to milliseconds, which is what people and JSON need.
func seconds(d time.Duration) float64 { return math.Round(max(d, 0).Seconds()*1e3) / 1e3 }

// maxText is how many bytes of a label or name are shown. They come from clients, and are sent each second.
const maxText = 1024

// shown makes a text what JSON says of it, so that it can be asked for as it is shown.
func shown(s string) string { return cut(strings.ToValidUTF8(s, "\uFFFD")) }

// cut shortens a text that is too long to show.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
