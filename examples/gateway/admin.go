package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/inflight-go/inflight"
)

const (
	adminPath      = "/v1/admin/"
	orgLimitPath   = adminPath + "organizations/{org}/concurrent-limit"
	modelLimitPath = adminPath + "organizations/{org}/models/{model}/concurrent-limit"
)

// adminTokenVar is where the admin token is looked for, besides the command line, which every user of the machine can see.
const adminTokenVar = "GATEWAY_ADMIN_TOKEN"

// maxLimit bounds what may be set: above it somebody has mistyped.
const maxLimit = 1_000_000

// An admin is the API by which those who run the gateway set the limits in its database. The limit of an organisation is
// on what it has in flight over all models (inflight.Limits.Org), that of a model on what the organisation has in flight
// there (inflight.Limits.Key). A request must find room in both.
//
// A limit always has a value, if not of its own then from the limits file, or else the default. So GET always finds one,
// PUT replaces it, and DELETE brings back the one from below. All three answer with the limit that holds then.
type admin struct {
	limits *dbLimits // nil: the API is off
	token  string    // "": the API is off
	log    *slog.Logger
}

func (g *gateway) mountAdmin(token string) {
	a := &admin{limits: g.db, token: token, log: g.log}
	g.mux.Handle(orgLimitPath, a.guard(a.serveLimit))
	g.mux.Handle(modelLimitPath, a.guard(a.serveLimit))
	g.mux.Handle(adminPath, a.guard(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, http.StatusNotFound, "unknown_url",
			"There is nothing at this URL. A slash in the name of a model is written as %2F, as in meta-llama%2FLlama-3.")
	}))
}

// guard lets in who has the token.
func (a *admin) guard(next http.HandlerFunc) http.Handler {
	want := sha256.Sum256([]byte(a.token)) // of one length, whatever the token's
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(token))
		switch {
		case a.limits == nil || a.token == "":
			fail(w, r, http.StatusForbidden, "admin_api_off",
				"The admin API is off. It needs a database and a token: start the gateway with -db and -admin-token.")
		case !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) == 0:
			w.Header().Set("WWW-Authenticate", `Bearer realm="admin"`)
			fail(w, r, http.StatusUnauthorized, "invalid_admin_token", "Missing or incorrect admin token.")
		default:
			next(w, r)
		}
	})
}

func (a *admin) serveLimit(w http.ResponseWriter, r *http.Request) {
	k, err := limitKey(r)
	if err != nil {
		fail(w, r, http.StatusBadRequest, "invalid_name", err.Error())
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		set, err := a.limits.store.limits(r.Context(), k)
		if err != nil {
			a.unavailable(w, r, err)
			return
		}
		reply(w, http.StatusOK, a.limitHeld(k, limitAt(k, set)))
	case http.MethodPut:
		limit, err := readLimit(w, r)
		if err != nil {
			fail(w, r, statusOf(err), "invalid_limit", err.Error())
			return
		}
		a.change(w, r, k, limit)
	case http.MethodDelete:
		a.change(w, r, k, 0)
	default:
		w.Header().Set("Allow", "DELETE, GET, HEAD, PUT")
		fail(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "Only GET, PUT and DELETE are allowed here.")
	}
}

// change sets a limit, or removes it if it is 0. A client that goes away does not stop it half-way.
func (a *admin) change(w http.ResponseWriter, r *http.Request, k inflight.Key, limit int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	if err := a.limits.set(ctx, k, limit); err != nil {
		a.unavailable(w, r, err)
		return
	}
	held := a.limitHeld(k, limit)
	a.log.Info("limit changed",
		"organization", k.Org, "model", k.Model, "limit", held.Limit, "source", held.Source, "by", r.RemoteAddr)
	reply(w, http.StatusOK, held)
}

// A heldLimit is the answer to all requests.
type heldLimit struct {
	Object       string  `json:"object"` // "concurrent_limit"
	Organization string  `json:"organization"`
	Model        *string `json:"model"`  // null: all models together
	Limit        any     `json:"limit"`  // a number, "unlimited" or "blocked"
	Source       string  `json:"source"` // "database": set here; "limits_file" or "default": not set here
}

// limitHeld is the limit that holds for k if this is its own, 0 for none.
func (a *admin) limitHeld(k inflight.Key, own int) heldLimit {
	held := heldLimit{Object: "concurrent_limit", Organization: k.Org, Source: "database"}
	unset := inflight.Unlimited
	if k.Model != "" {
		held.Model = &k.Model
		unset = inflight.DefaultKeyLimit
	}
	limit := own
	if limit == 0 {
		limit, held.Source = limitAt(k, a.limits.others(k)), "limits_file"
	}
	if limit == 0 {
		limit, held.Source = unset, "default"
	}
	held.Limit = slotsOf(limit)
	return held
}

// unavailable answers when the database fails.
func (a *admin) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	a.log.Error("admin request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	w.Header().Set("Retry-After", "1")
	fail(w, r, http.StatusServiceUnavailable, "limits_database_unavailable",
		"The database of limits cannot be used now. Nothing has changed: the limits stay as they were last known.")
}

// limitKey reads from the URL whose limit is meant: a model's, or, with an empty model, an organisation's.
func limitKey(r *http.Request) (inflight.Key, error) {
	k := inflight.Key{Org: r.PathValue("org"), Model: r.PathValue("model")}
	switch {
	case !orgName.MatchString(k.Org):
		return k, errors.New("an organization's name is 1 to 64 letters, digits, _ and -")
	case len(k.Model) > maxModel, !utf8.ValidString(k.Model), strings.ContainsFunc(k.Model, unicode.IsControl):
		return k, errors.New("a model's name has at most 256 bytes of UTF-8 and no control characters")
	}
	return k, nil
}

// limitAt is the limit that the API means by k.
func limitAt(k inflight.Key, l inflight.Limits) int {
	if k.Model == "" {
		return l.Org
	}
	return l.Key
}

var (
	errContentType = errors.New("Content-Type must be application/json")
	sayLimit       = fmt.Sprintf(`{"limit": N}, N from 1 to %d, or "unlimited" or "blocked" for N`, maxLimit)
)

// readLimit reads the body of a PUT, which is an object with a field limit and nothing else.
func readLimit(w http.ResponseWriter, r *http.Request) (int, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return 0, errContentType
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
	if err != nil {
		return 0, err
	}
	limit, err := parseLimit(body)
	if err != nil {
		return 0, fmt.Errorf("%w: write %s", err, sayLimit)
	}
	return limit, nil
}

func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errContentType):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	default:
		return http.StatusBadRequest
	}
}

// parseLimit is stricter than encoding/json, which would take {"Limit": 1} and the last of two limits.
func parseLimit(body []byte) (int, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return 0, fmt.Errorf("the body is not JSON, %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(whole))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return 0, errors.New("the body is not an object")
	}
	var value json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		switch {
		case err != nil:
			return 0, err
		case name != "limit":
			return 0, fmt.Errorf("unknown field %.40q", name)
		case value != nil:
			return 0, errors.New("limit is given twice")
		}
		if err := dec.Decode(&value); err != nil {
			return 0, err
		}
	}
	if value == nil {
		return 0, errors.New("limit is missing")
	}
	return limitOf(value)
}

// limitOf reads a limit in JSON, in which the database gives it, too.
func limitOf(value []byte) (int, error) {
	switch string(value) {
	case `"unlimited"`:
		return inflight.Unlimited, nil
	case `"blocked"`:
		return inflight.Blocked, nil
	}
	if n, err := strconv.Atoi(string(value)); err == nil && n >= 1 && n <= maxLimit {
		return n, nil
	}
	return 0, fmt.Errorf("limit is %.40s", value)
}

// slotsOf is a limit as the API and the database give it.
func slotsOf(limit int) any {
	if limit < 0 || limit == inflight.Unlimited {
		return limitText(limit)
	}
	return limit
}
