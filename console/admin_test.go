package console_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/console"
)

// A desk is a console with which operators may act, and what it has logged.
type desk struct {
	http.Handler
	reg   *inflight.Registry
	table *inflight.LimitTable
	log   bytes.Buffer
}

func newDesk(t *testing.T, admin bool) *desk {
	t.Helper()
	d := &desk{table: inflight.NewLimitTable(inflight.Limits{Key: 4})}
	d.reg = newRegistry(t, inflight.Config{Limits: d.table.Limits})
	d.Handler = console.Handler(d.reg, console.Config{
		Admin: admin, Table: d.table, Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
		User: func(r *http.Request) string { return r.Header.Get("X-Operator") },
	})
	return d
}

// ask requests an action as alice.
func (d *desk) ask(t *testing.T, method, target, body string, header ...string) *answer {
	t.Helper()
	d.log.Reset()
	w := do(t, d, method, target, body, append([]string{"X-Operator", "alice"}, header...)...)
	a := &answer{status: w.Code, log: d.log.String()}
	if w.Code == http.StatusNoContent {
		require.Empty(t, w.Body.String())
	} else {
		a.says = problem(t, w, w.Code)
	}
	require.Equal(t, 1, strings.Count(a.log, "\n"), "each action is logged once: %s", a.log)
	return a
}

type answer struct {
	status    int
	says, log string
}

// An action is a request for one, and whether it has been done.
type action struct {
	method, target, body string
	done                 func() bool
}

// actions are all that there are, in an order in which all can be done.
func (d *desk) actions(t *testing.T) []action {
	t.Helper()
	slot := hold(t, d.reg, acme)
	ctx := slot.Context(t.Context())
	limitIsNot := func(n int) func() bool { return func() bool { return d.table.Limits(acme).Key != n } }
	return []action{
		{"POST", "/api/slots/1/cancel", "", func() bool { return ctx.Err() != nil }},
		{"POST", "/api/slots/1/evict?confirm=1", "", func() bool { return d.reg.InUse(acme) == 0 }},
		{"PUT", "/api/limits?defaults=true", `{"key":9}`, limitIsNot(4)},
		{"DELETE", "/api/limits?defaults=true", "", limitIsNot(4)},
	}
}

func TestReadOnly(t *testing.T) {
	d := newDesk(t, false)
	for _, action := range d.actions(t) {
		a := d.ask(t, action.method, action.target, action.body)
		require.Equal(t, http.StatusForbidden, a.status, action.target)
		require.Contains(t, a.says, "read only")
		require.Contains(t, a.log, "read only")
		require.False(t, action.done(), action.target)
	}
}

// What a browser sends on behalf of another site is refused, and nothing is done.
func TestCrossOrigin(t *testing.T) {
	d := newDesk(t, true)
	actions := d.actions(t)
	for _, action := range actions {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example"},
		} {
			a := d.ask(t, action.method, action.target, action.body, header...)
			require.Equal(t, http.StatusForbidden, a.status, action.target)
			require.Contains(t, a.says, "another site")
			require.Contains(t, a.log, "another site")
			require.False(t, action.done(), action.target)
		}
	}
	for _, action := range actions {
		a := d.ask(t, action.method, action.target, action.body, "Sec-Fetch-Site", "same-origin", "Origin", "http://example.com")
		require.Equal(t, http.StatusNoContent, a.status, a.says)
		require.True(t, action.done(), action.target)
	}
}

// If nobody can say who asks, nothing is done.
func TestUserThatPanics(t *testing.T) {
	d := newDesk(t, true)
	h := console.Handler(d.reg, console.Config{
		Admin: true, Table: d.table, Logger: quiet(), User: func(*http.Request) string { panic("who?") },
	})
	for _, action := range d.actions(t) {
		require.PanicsWithValue(t, "who?", func() { do(t, h, action.method, action.target, action.body) })
		require.False(t, action.done(), action.target)
	}
}

func TestCancel(t *testing.T) {
	d := newDesk(t, true)
	slot := hold(t, d.reg, acme, inflight.Label("stuck"))
	ctx := slot.Context(t.Context())
	a := d.ask(t, "POST", "/api/slots/1/cancel", "")
	require.Equal(t, http.StatusNoContent, a.status)
	require.ErrorIs(t, context.Cause(ctx), console.ErrCanceled)
	require.EqualError(t, context.Cause(ctx), "console: slot cancelled by alice")
	require.Equal(t, 1, d.reg.InUse(acme), "it counts until its holder lets go")
	for _, part := range []string{
		`level=INFO msg="console: cancel slot"`, "registry=gateway", "who=alice", "remote=192.0.2.1:1234", "outcome=done",
		"slot=1", "key=acme/glm", "label=stuck",
	} {
		require.Contains(t, a.log, part)
	}

	slot.Release()
	a = d.ask(t, "POST", "/api/slots/1/cancel", "")
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, a.log, `level=WARN msg="console: cancel slot"`)
	require.Contains(t, a.log, `outcome="There is no such slot any more." slot=1`)
	require.Equal(t, http.StatusBadRequest, d.ask(t, "POST", "/api/slots/x/cancel", "").status)
	require.Equal(t, http.StatusBadRequest, d.ask(t, "POST", "/api/slots/1/cancel?confirm=1", "").status)
}

// A number that was seen in another process, before a restart or in another replica, means another slot here.
func TestActionSaysWhichProcessItMeans(t *testing.T) {
	d := newDesk(t, true)
	instance, _ := get(t, d, "/api/overview")["instance"].(string)
	another, _ := get(t, newDesk(t, true), "/api/overview")["instance"].(string)
	require.Len(t, instance, 8)
	require.NotEqual(t, instance, another)
	require.Contains(t, do(t, d, http.MethodGet, "/", "").Body.String(), "\ninstance  "+instance+"\n")
	require.Equal(t, instance, decode[map[string]map[string]any](t, do(t, d, http.MethodGet, "/api/state", "").Body)["overview"]["instance"])

	for _, action := range d.actions(t)[:2] {
		target := action.target + "?instance="
		if strings.Contains(action.target, "?") {
			target = action.target + "&instance="
		}
		for _, wrong := range []string{another, ""} {
			a := d.ask(t, action.method, target+wrong, "")
			require.Equal(t, http.StatusConflict, a.status)
			require.Contains(t, a.says, "another process")
			require.Contains(t, a.log, `outcome="This is another process than`)
			require.Contains(t, a.log, "slot=1")
			require.False(t, action.done(), target)
		}
		require.Equal(t, http.StatusOK, do(t, d, http.MethodGet, "/api/slots/1?instance="+instance, "").Code)
		require.Equal(t, http.StatusConflict, do(t, d, http.MethodGet, "/api/slots/1?instance="+another, "").Code)
		require.Equal(t, http.StatusNoContent, d.ask(t, action.method, target+instance, "").status)
		require.True(t, action.done(), target)
	}
}

func TestEvictNeedsConfirmation(t *testing.T) {
	d := newDesk(t, true)
	slot := hold(t, d.reg, acme)
	ctx := slot.Context(t.Context())
	for _, query := range []string{"", "?confirm=", "?confirm=2", "?confirm=true", "?confirm=01"} {
		a := d.ask(t, "POST", "/api/slots/1/evict"+query, "")
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.says, "?confirm=")
	}
	require.NoError(t, ctx.Err())
	a := d.ask(t, "POST", "/api/slots/1/evict?confirm=1", "")
	require.Equal(t, http.StatusNoContent, a.status)
	require.ErrorIs(t, context.Cause(ctx), inflight.ErrEvicted)
	require.Zero(t, d.reg.InUse(acme))
	require.Contains(t, a.log, `msg="console: evict slot"`)
	require.Equal(t, http.StatusNotFound, d.ask(t, "POST", "/api/slots/1/evict?confirm=1", "").status)
}

func TestSetAndDeleteLimits(t *testing.T) {
	d := newDesk(t, true)
	a := d.ask(t, "PUT", "/api/limits?org=a%2Fb&model=glm", `{"key": 9, "org": "unlimited", "total": "blocked"}`)
	require.Equal(t, http.StatusNoContent, a.status, a.says)
	key := inflight.Key{Org: "a/b", Model: "glm"}
	require.Equal(t, inflight.Limits{Key: 9, Org: inflight.Unlimited, Total: inflight.Blocked}, d.table.Limits(key))
	require.Contains(t, a.log, `msg="console: set limits"`)
	require.Contains(t, a.log, "who=alice")
	require.Contains(t, a.log, `outcome=done org=a/b model=glm limits="{\"key\":9,\"org\":\"unlimited\",\"total\":\"blocked\"}"`)

	require.Equal(t, http.StatusNoContent, d.ask(t, "PUT", "/api/limits?defaults=true", `{"key": 5}`).status)
	require.Equal(t, 5, d.table.Limits(acme).Key)
	require.Equal(t, http.StatusNoContent, d.ask(t, "DELETE", "/api/limits?org=a%2Fb&model=glm", "").status)
	require.Equal(t, 5, d.table.Limits(key).Key)
	require.Equal(t, http.StatusNoContent, d.ask(t, "DELETE", "/api/limits?defaults=true", "").status)
	require.Empty(t, d.table.Rules())
}

func TestBadLimits(t *testing.T) {
	d := newDesk(t, true)
	for _, c := range []struct {
		method, query, body string
		status              int
		says                string
	}{
		{"PUT", "?org=acme", ``, 400, "not JSON"},
		{"PUT", "?org=acme", `{"key":`, 400, "not JSON"},
		{"PUT", "?org=acme", `{"key":1}, "rules": []`, 400, "not JSON"},
		{"PUT", "?org=acme", `7`, 400, "write an object, not 7"},
		{"PUT", "?org=acme", `{}`, 400, "use DELETE"},
		{"PUT", "?org=acme", `{"key": 0}`, 400, "key is 0: write an integer of at least 1"},
		{"PUT", "?org=acme", `{"key": -1}`, 400, "at least 1"},
		{"PUT", "?org=acme", `{"key": 1.5}`, 400, "at least 1"},
		{"PUT", "?org=acme", `{"key": "many"}`, 400, "at least 1"},
		{"PUT", "?org=acme", `{"keys": 1}`, 400, "unknown field"},
		{"PUT", "?org=acme", `{"key": 1, "key": 2}`, 400, "given twice"},
		{"PUT", "?org=acme", strings.Repeat(" ", 5000) + `{"key": 1}`, 413, "too large"},
		{"PUT", "", `{"key": 1}`, 400, "Name the rule"},
		{"PUT", "?org=&model=", `{"key": 1}`, 400, "Name the rule"},
		{"PUT", "?org=acme&defaults=true", `{"key": 1}`, 400, "Name the rule"},
		{"PUT", "?defaults=yes", `{"key": 1}`, 400, "defaults is not true"},
		{"PUT", "?org=acme&scope=key", `{"key": 1}`, 400, "Unknown parameter"},
		{"DELETE", "", "", 400, "Name the rule"},
		{"DELETE", "?org=%ff", "", 400, "not UTF-8"},
	} {
		a := d.ask(t, c.method, "/api/limits"+c.query, c.body)
		require.Equal(t, c.status, a.status, c)
		require.Contains(t, a.says, c.says)
		require.Contains(t, a.log, "level=WARN")
	}
	require.Equal(t, []inflight.LimitRule{{Limits: inflight.Limits{Key: 4}}}, d.table.Rules())

	h := console.Handler(d.reg, console.Config{Admin: true, Logger: quiet()})
	for _, method := range []string{"PUT", "DELETE"} {
		require.Contains(t, problem(t, do(t, h, method, "/api/limits?org=acme", `{"key": 1}`), http.StatusNotFound), "no limit table")
	}
}

// Raised limits let waiters in at once, whether or not anybody has told the table to say so.
func TestLimitsReachWaiters(t *testing.T) {
	for _, c := range [][3]string{{"PUT", "?org=acme", `{"key": 2}`}, {"DELETE", "?org=acme", ""}} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, true)
			require.NoError(t, d.table.Set(inflight.Key{Org: "acme"}, inflight.Limits{Key: 1}))
			hold(t, d.reg, acme)
			wait(t, d.reg, acme)
			require.Equal(t, http.StatusNoContent, d.ask(t, c[0], "/api/limits"+c[1], c[2]).status)
			synctest.Wait()
			require.Zero(t, d.reg.Stats().Waiters)
		})
	}
}

// Who it is may depend on where the console is mounted.
func TestUserSeesTheRequestAsItCame(t *testing.T) {
	d := newDesk(t, true)
	h := console.Handler(d.reg, console.Config{
		Admin: true, Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
		User: func(r *http.Request) string { return r.PathValue("tenant") + " " + r.Pattern + " " + r.URL.Path },
	})
	hold(t, d.reg, acme)
	w := do(t, muxed("/t/{tenant}/debug/", h), "POST", "/t/7/debug/api/slots/1/cancel", "")
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Contains(t, d.log.String(), `who="7 /t/{tenant}/debug/ /t/7/debug/api/slots/1/cancel"`)
}

func TestWhoIsTheRemoteAddressByDefault(t *testing.T) {
	d := newDesk(t, true)
	ctx := hold(t, d.reg, acme).Context(t.Context())
	for user, want := range map[string]func(*http.Request) string{
		"192.0.2.1:1234": nil,
		"unknown":        func(*http.Request) string { return "" },
	} {
		d.log.Reset()
		h := console.Handler(d.reg, console.Config{Admin: true, User: want, Logger: slog.New(slog.NewTextHandler(&d.log, nil))})
		do(t, h, "POST", "/api/slots/1/cancel", "")
		require.Contains(t, d.log.String(), "who="+user+" ")
	}
	require.ErrorIs(t, context.Cause(ctx), console.ErrCanceled)
}
