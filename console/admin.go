package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/inflight-go/inflight"
)

// ErrCanceled is the cause of the context of a slot that was cancelled in a console. The cause also names who did it:
// use errors.Is(context.Cause(ctx), console.ErrCanceled).
var ErrCanceled = errors.New("console: slot cancelled")

// What clients are told when there is nothing to act on.
var (
	errGone      = &statusError{http.StatusNotFound, "There is no such slot any more."}
	errElsewhere = &statusError{http.StatusConflict, "This is another process than the one the slot was seen in: " +
		"the same number means another slot here. Look again."}
	errNoTable  = &statusError{http.StatusNotFound, "This console has no limit table."}
	errReadOnly = &statusError{http.StatusForbidden, "This console is read only: Config.Admin is not set."}
)

// An actor does what a request asks for. It returns what it acted on, for the log, also with an error; and nothing may
// be done if it returns one.
type actor func(r *http.Request, who string) (on []slog.Attr, err error)

// action answers the request for an action and logs what became of it.
func (h *handler) action(name string, act actor) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := h.who(r) // before all else: if it panics nothing was done
		on, err := h.guarded(w, r, who, act)
		level, outcome := slog.LevelInfo, "done"
		if err != nil {
			level, outcome = slog.LevelWarn, err.Error()
		}
		h.cfg.Logger.LogAttrs(r.Context(), level, "console: "+name, append([]slog.Attr{
			slog.String("registry", h.registry.Name()), slog.String("who", who), slog.String("remote", r.RemoteAddr),
			slog.String("outcome", outcome),
		}, on...)...)
		if err != nil {
			failWith(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// guarded acts if that is allowed.
func (h *handler) guarded(w http.ResponseWriter, r *http.Request, who string, act actor) ([]slog.Attr, error) {
	if !h.cfg.Admin {
		return nil, errReadOnly
	}
	if err := h.crossOrigin.Check(r); err != nil {
		return nil, &statusError{http.StatusForbidden, "Requests from another site are refused: " + err.Error() + "."}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	return act(r, who)
}

// cancel answers POST api/slots/{id}/cancel?instance=.
func (h *handler) cancel(r *http.Request, who string) ([]slog.Attr, error) {
	values, err := parse(r, "instance")
	if err != nil {
		return slotNamed(r), err
	}
	return h.actOnSlot(r, values, func(id uint64) bool {
		return h.registry.Cancel(id, fmt.Errorf("%w by %s", ErrCanceled, who))
	})
}

// evict answers POST api/slots/{id}/evict?confirm={id}&instance=.
func (h *handler) evict(r *http.Request, _ string) ([]slog.Attr, error) {
	values, err := parse(r, "confirm", "instance")
	if err == nil && values.Get("confirm") != r.PathValue("id") {
		err = badRequest("What a slot's holder does goes on uncounted after an eviction. " +
			"Confirm it: add ?confirm= with the number of the slot.")
	}
	if err != nil {
		return slotNamed(r), err
	}
	return h.actOnSlot(r, values, h.registry.Evict)
}

// actOnSlot acts on the slot that the path names, and says which that is.
func (h *handler) actOnSlot(r *http.Request, values url.Values, act func(id uint64) bool) ([]slog.Attr, error) {
	slot, err := h.find(r, values)
	if err != nil {
		return slotNamed(r), err
	}
	on := []slog.Attr{
		slog.Uint64("slot", slot.ID), slog.String("key", slot.Key.String()), slog.String("label", cut(slot.Label)),
		slog.Duration("held", slot.Held),
	}
	if !act(slot.ID) {
		err = errGone
	}
	return on, err
}

// slotNamed says which slot a request is about that got no further.
func slotNamed(r *http.Request) []slog.Attr {
	return []slog.Attr{slog.String("slot", fmt.Sprintf("%.40s", r.PathValue("id")))}
}

// setLimits answers PUT api/limits.
func (h *handler) setLimits(r *http.Request, _ string) ([]slog.Attr, error) {
	key, on, err := h.rule(r)
	if err != nil {
		return on, err
	}
	limits, text, err := readLimits(r.Body)
	if err != nil {
		return on, err
	}
	if err := h.cfg.Table.Set(key, limits); err != nil {
		return on, badRequest(err.Error())
	}
	h.registry.LimitsChanged() // in case nobody has told the table to
	return append(on, slog.String("limits", text)), nil
}

// deleteLimits answers DELETE api/limits.
func (h *handler) deleteLimits(r *http.Request, _ string) ([]slog.Attr, error) {
	key, on, err := h.rule(r)
	if err != nil {
		return on, err
	}
	h.cfg.Table.Delete(key)
	h.registry.LimitsChanged()
	return on, nil
}

// rule returns the key of the rule that a request is about.
func (h *handler) rule(r *http.Request) (inflight.Key, []slog.Attr, error) {
	values, err := parse(r, "org", "model", "defaults")
	key := inflight.Key{Org: values.Get("org"), Model: values.Get("model")}
	on := []slog.Attr{slog.String("org", cut(key.Org)), slog.String("model", cut(key.Model))}
	switch {
	case err != nil:
	case h.cfg.Table == nil:
		err = errNoTable
	case values.Has("defaults") && values.Get("defaults") != "true":
		err = badRequest("defaults is not true: write defaults=true, or leave it out.")
	case values.Has("defaults") != (key == inflight.Key{}):
		err = badRequest("Name the rule: org, model or both, or defaults=true for the defaults.")
	}
	return key, on, err
}

// maxBody bounds the body of a request in bytes. Limits take less than a hundred.
const maxBody = 4096

// readLimits reads an object such as {"key": 64, "org": "unlimited"}, as strictly as a LimitTable reads its defaults,
// and returns its text as well.
func readLimits(body io.Reader) (inflight.Limits, string, error) {
	given, err := io.ReadAll(body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return inflight.Limits{}, "", &statusError{http.StatusRequestEntityTooLarge, "The body is too large for limits."}
	}
	var text bytes.Buffer
	if err != nil || json.Compact(&text, given) != nil {
		return inflight.Limits{}, "", badRequest(`The body is not JSON: write limits such as {"key": 64, "org": "unlimited"}.`)
	}
	var table inflight.LimitTable
	if err := json.Unmarshal(fmt.Appendf(nil, `{"defaults":%s}`, &text), &table); err != nil {
		return inflight.Limits{}, "", badRequest(strings.TrimPrefix(err.Error(), "inflight: limit table: defaults: "))
	}
	limits := table.Limits(inflight.Key{})
	if limits == (inflight.Limits{}) {
		return limits, "", badRequest("The body sets no limit: use DELETE to remove a rule.")
	}
	return limits, text.String(), nil
}
