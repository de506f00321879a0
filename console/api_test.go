package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/console"
)

func TestOverview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := inflight.NewLimitTable(inflight.Limits{Key: 2})
		reg := newRegistry(t, inflight.Config{Limits: table.Limits, LongHeld: time.Minute})
		h := console.Handler(reg, console.Config{Table: table, Admin: true})
		require.Nil(t, get(t, h, "/api/overview")["last_sweep"])

		hold(t, reg, acme, inflight.Weight(2))
		hold(t, reg, globex).Release()
		_, err := reg.TryAcquire(acme)
		require.Error(t, err)
		time.Sleep(90 * time.Second)
		reg.Sweep()
		time.Sleep(1500 * time.Millisecond)
		none := `{"full":0,"too_heavy":0,"timed_out":0,"queue_full":0}`
		require.JSONEq(t, `{
			"registry": "gateway", "instance": "INSTANCE", "at": "2000-01-01T00:01:31.5Z", "admin": true, "limit_table": true,
			"in_use": 2, "holders": 1, "keys": 1, "waiters": 0, "long_held": 1, "lost": 0, "max_per_key": 2, "oldest_seconds": 91.5,
			"peak": {"in_use": 3, "per_key": 2}, "recent_peak": {"in_use": 3, "per_key": 2},
			"admitted_total": 2, "released_total": 1, "evicted_total": 0, "reclaimed_total": 0, "lost_total": 0,
			"waited_total": 0, "canceled_total": 0, "closed_total": 0, "rejected_total": 1,
			"rejected": {"key": {"full":1,"too_heavy":0,"timed_out":0,"queue_full":0}, "org": `+none+`, "model": `+none+`, "total": `+none+`},
			"sweeps_total": 1, "last_sweep": "2000-01-01T00:01:30Z"
		}`, anonymous(t, h, strings.ReplaceAll(do(t, h, http.MethodGet, "/api/overview", "").Body.String(), localZone(), "Z")))
	})
}

// anonymous takes out what is random.
func anonymous(t *testing.T, h http.Handler, text string) string {
	t.Helper()
	instance, _ := get(t, h, "/api/overview")["instance"].(string)
	return strings.ReplaceAll(text, instance, "INSTANCE")
}

// localZone is how the zone of this machine is written in the time of the tests.
func localZone() string { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.Local).Format("Z07:00") }

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{LongHeld: time.Minute, CaptureStack: true})
		h := newConsole(reg)
		require.JSONEq(t, `{"total":0,"matched":0,"more":0,"items":[]}`, do(t, h, http.MethodGet, "/api/slots", "").Body.String())
		hold(t, reg, acme, inflight.Label("first"), inflight.Weight(3), inflight.Also(other, globex))
		time.Sleep(61 * time.Second)
		hold(t, reg, globex)
		time.Sleep(1234567 * time.Microsecond)

		want := `{"id":"1","key":{"org":"acme","model":"glm"},` +
			`"also":[{"org":"acme","model":"llama"},{"org":"globex","model":"glm"}],"label":"first","weight":3,` +
			`"acquired_at":"2000-01-01T00:00:00Z","held_seconds":62.235,"long_held":true,"lost":false,"has_stack":true`
		young := `{"id":"2","key":{"org":"globex","model":"glm"},"label":"","weight":1,` +
			`"acquired_at":"2000-01-01T00:01:01Z","held_seconds":1.235,"long_held":false,"lost":false,"has_stack":true}`
		body := strings.ReplaceAll(do(t, h, http.MethodGet, "/api/slots", "").Body.String(), localZone(), "Z")
		require.JSONEq(t, `{"total":2,"matched":2,"more":0,"items":[`+want+`},`+young+`]}`, body)

		one := get(t, h, "/api/slots/1")
		require.Equal(t, "first", one["label"])
		require.Contains(t, one["stack"], "console_test.hold")
		require.Contains(t, problem(t, do(t, h, http.MethodGet, "/api/slots/3", ""), http.StatusNotFound), "no such slot")
		require.Contains(t, problem(t, do(t, h, http.MethodGet, "/api/slots/x", ""), http.StatusBadRequest), "number")
	})
}

func TestLostSlotIsMarked(t *testing.T) {
	reg := newRegistry(t, inflight.Config{})
	h := newConsole(reg)
	func() {
		_, err := reg.TryAcquire(acme) //slotvet:ignore dropped on purpose
		require.NoError(t, err)
	}()
	require.Eventually(t, func() bool {
		collect()
		reg.Sweep()
		return get(t, h, "/api/overview")["lost"] == 1.0
	}, soon, tick)
	hold(t, reg, globex)
	require.Equal(t, []any{true, false}, items(t, get(t, h, "/api/slots"), "lost"))
	require.Equal(t, []any{true}, items(t, get(t, h, "/api/slots?state=lost"), "lost"))
	require.Contains(t, do(t, h, http.MethodGet, "/", "").Body.String(), "  lost  acme/glm")
	reg.Evict(1)
}

func TestWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: 2, Total: 3})})
		h := newConsole(reg)
		hold(t, reg, acme, inflight.Weight(2))
		hold(t, reg, globex)
		wait(t, reg, acme, inflight.Label("one"))
		time.Sleep(time.Second)
		wait(t, reg, other, inflight.Label("two"), inflight.Weight(2))
		time.Sleep(500 * time.Millisecond)
		require.JSONEq(t, `{"total":2,"matched":2,"more":0,"items":[
			{"key":{"org":"acme","model":"glm"},"label":"one","weight":1,"since":"2000-01-01T00:00:00Z","waited_seconds":1.5,"blocked":"key"},
			{"key":{"org":"acme","model":"llama"},"label":"two","weight":2,"since":"2000-01-01T00:00:01Z","waited_seconds":0.5,"blocked":"total"}
		]}`, strings.ReplaceAll(do(t, h, http.MethodGet, "/api/waiters", "").Body.String(), localZone(), "Z"))
		require.Equal(t, []any{"two"}, items(t, get(t, h, "/api/waiters?q=TWO"), "label"))
	})
}

// Keys are in the order of utilisation. What has no limit is nowhere near it; what is blocked and used is above it.
func TestKeys(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{})
	reg := newRegistry(t, inflight.Config{Limits: table.Limits})
	h := newConsole(reg)
	for i, limit := range []int{10, inflight.Unlimited, 4, 2, 8} {
		key := inflight.Key{Org: "org", Model: strconv.Itoa(i)}
		require.NoError(t, table.Set(key, inflight.Limits{Key: limit}))
		hold(t, reg, key, inflight.Weight(2))
	}
	hold(t, reg, inflight.Key{Org: "org", Model: "4"})
	require.NoError(t, table.Set(inflight.Key{Org: "org", Model: "3"}, inflight.Limits{Key: inflight.Blocked}))
	list := get(t, h, "/api/keys")
	require.Equal(t, []any{"blocked", 4.0, 8.0, 10.0, "unlimited"}, items(t, list, "limit"))
	require.Equal(t, []any{nil, 0.5, 0.375, 0.2, nil}, items(t, list, "utilisation"))
	require.Equal(t, []any{2.0, 2.0, 3.0, 2.0, 2.0}, items(t, list, "in_use"))
	require.Equal(t, []any{1.0, 1.0, 2.0, 1.0, 1.0}, items(t, list, "holders"))

	list = get(t, h, "/api/keys?limit=2")
	require.Equal(t, []any{"blocked", 4.0}, items(t, list, "limit"))
	require.Equal(t, []any{5.0, 5.0, 3.0}, []any{list["total"], list["matched"], list["more"]})
}

// Of a limit that is shared with other processes they show what may be in use here, and what elsewhere.
func TestLeasedKeys(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{})
	require.NoError(t, table.Set(other, inflight.Limits{Key: inflight.Unlimited}))
	reg := newRegistry(t, inflight.Config{Limits: table.Limits})
	h := newConsole(reg)
	hold(t, reg, acme, inflight.Weight(3))
	hold(t, reg, other)
	require.NotContains(t, do(t, h, http.MethodGet, "/api/keys", "").Body.String(), "leased")
	lease(t, reg, inflight.Grant{Granted: 5, Others: 7, Keep: -1})
	require.Equal(t, []any{map[string]any{"granted": 5.0, "elsewhere": 7.0}, nil}, items(t, get(t, h, "/api/keys"), "leased"))
}

func TestLimitsThatCannotBeRead(t *testing.T) {
	reg := newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits { return inflight.Limits{} }})
	hold(t, reg, acme)
	require.Equal(t, []any{64.0}, items(t, get(t, newConsole(reg), "/api/keys"), "limit"))

	broken := false
	reg = newRegistry(t, inflight.Config{Limits: func(inflight.Key) inflight.Limits {
		if broken {
			panic("no limits")
		}
		return inflight.Limits{}
	}})
	hold(t, reg, acme)
	broken = true
	require.Equal(t, []any{nil}, items(t, get(t, newConsole(reg), "/api/keys"), "limit"))
}

// The search is over all holders, and finds what the list does not show.
func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := newRegistry(t, inflight.Config{LongHeld: time.Minute})
		h := newConsole(reg)
		hold(t, reg, acme, inflight.Label("POST /v1/chat req-11"))
		time.Sleep(2 * time.Minute)
		hold(t, reg, globex, inflight.Label("POST /v1/Messages req-12"))
		hold(t, reg, other, inflight.Label("GET /"), inflight.Also(inflight.Key{Org: "shared", Model: ""}))
		hold(t, reg, inflight.Key{Org: "a b", Model: "glm"}, inflight.Label("Ünïcode"))
		for query, want := range map[string]string{
			"":                   "1 2 3 4",
			"q=":                 "1 2 3 4",
			"q=post":             "1 2",
			"q=POST+req-12":      "2",
			"q=messages":         "2",
			"q=acme":             "1 3",
			"q=acme/glm":         "1",
			"q=acme+chat+nobody": "",
			"q=shared":           "3",
			"q=ünïCODE":          "4",
			"q=%22a+b%22":        "4",
			"q=2":                "2",
			"q=3":                "3",
			"org=acme":           "1 3",
			"org=acm":            "",
			"model=glm":          "1 2 4",
			"org=acme&model=glm": "1",
			"model=":             "3",
			"org=shared":         "3",
			"org=acme&model=":    "",
			"state=long_held":    "1",
			"state=lost":         "",
			"state=":             "1 2 3 4",
			"q=glm&limit=1":      "1",
			"limit=3":            "1 2 3",
		} {
			got := items(t, get(t, h, "/api/slots?"+query), "id")
			require.Equal(t, "["+want+"]", fmt.Sprint(got), query)
		}
		list := get(t, h, "/api/slots?q=glm&limit=1")
		require.Equal(t, []any{4.0, 3.0, 2.0}, []any{list["total"], list["matched"], list["more"]})
	})
}

// A key can be asked for by what is shown of it, also if it is cut or not UTF-8. Others that are shown alike come too.
func TestKeyIsAskedForAsShown(t *testing.T) {
	long := strings.Repeat("m", 1100)
	for _, models := range [][]string{{long + "1", long + "2"}, {"\xff", "\xfe\xff"}} {
		reg := newRegistry(t, inflight.Config{})
		h := newConsole(reg)
		hold(t, reg, other)
		for _, model := range models {
			hold(t, reg, inflight.Key{Org: "acme", Model: model})
		}
		key, _ := items(t, get(t, h, "/api/slots"), "key")[1].(map[string]any)
		model, _ := key["model"].(string)
		require.Equal(t, []any{"2", "3"}, items(t, get(t, h, "/api/slots?model="+url.QueryEscape(model)), "id"))
		require.Equal(t, []any{"2", "3"}, items(t, get(t, h, "/api/slots?q="+url.QueryEscape(model)), "id"))
	}
}

func TestBadParameters(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	for target, says := range map[string]string{
		"/api/slots?limit=0":                            `limit is "0": write a number from 1 to 10000.`,
		"/api/slots?limit=10001":                        "from 1 to 10000",
		"/api/slots?limit=-1":                           "from 1 to 10000",
		"/api/slots?limit=":                             "from 1 to 10000",
		"/api/slots?limit=1e3":                          "from 1 to 10000",
		"/api/slots?limit=99999999999999999999":         "from 1 to 10000",
		"/api/slots?lmit=5":                             `Unknown parameter "lmit": there are q, org, model, state, limit.`,
		"/api/slots?q=a&q=b":                            "given 2 times",
		"/api/slots?q=%zz":                              "cannot be read",
		"/api/slots?q=%ff":                              "q is not UTF-8",
		"/api/slots?q=" + strings.Repeat("x", 1025):     "q has 1025 bytes",
		"/api/slots?org=" + strings.Repeat("x", 1025):   "org has 1025 bytes",
		"/api/slots?state=old":                          `state is "old": write long_held or lost`,
		"/api/slots/1?q=x":                              `Unknown parameter "q": there are instance.`,
		"/api/keys?state=lost":                          "Unknown parameter",
		"/api/waiters?state=lost":                       "Unknown parameter",
		"/api/overview?limit=1":                         "there are none here",
		"/api/history?limit=1":                          "there are none here",
		"/api/limits?org=acme":                          "there are none here",
		"/api/state?limit=1":                            "Unknown parameter",
		"/api/events?limit=1":                           "Unknown parameter",
		"/?format=xml":                                  `format is "xml": write text or html`,
		"/?format=text&limit=0":                         "from 1 to 10000",
		"/api/slots?" + strings.Repeat("y", 100) + "=1": `Unknown parameter "` + strings.Repeat("y", 40) + `"`,
	} {
		require.Contains(t, problem(t, do(t, h, http.MethodGet, target, ""), http.StatusBadRequest), says, target)
	}
}

func TestWrongMethod(t *testing.T) {
	h := console.Handler(newRegistry(t, inflight.Config{}), console.Config{Admin: true, Logger: quiet()})
	for _, c := range []struct{ method, target, allow string }{
		{"POST", "/", "GET, HEAD"},
		{"POST", "/api/overview", "GET, HEAD"},
		{"DELETE", "/api/slots/1", "GET, HEAD"},
		{"GET", "/api/slots/1/cancel", "POST"},
		{"GET", "/api/slots/1/evict?confirm=1", "POST"},
		{"POST", "/api/limits", "DELETE, GET, PUT, HEAD"},
		{"OPTIONS", "/api/events", "GET, HEAD"},
	} {
		w := do(t, h, c.method, c.target, "")
		require.Contains(t, problem(t, w, http.StatusMethodNotAllowed), c.allow)
		require.Equal(t, c.allow, w.Header().Get("Allow"))
	}
	for _, target := range []string{"/", "/api/slots", "/api/events"} {
		require.Equal(t, http.StatusOK, do(t, h, http.MethodHead, target, "").Code)
	}
}

func TestLimits(t *testing.T) {
	reg := newRegistry(t, inflight.Config{})
	require.Contains(t, problem(t, do(t, newConsole(reg), http.MethodGet, "/api/limits", ""), http.StatusNotFound), "no limit table")

	table := inflight.NewLimitTable(inflight.Limits{Key: 8})
	require.NoError(t, table.Set(acme, inflight.Limits{Key: inflight.Unlimited, Org: 3}))
	h := console.Handler(reg, console.Config{Table: table})
	require.JSONEq(t, `{"defaults":{"key":8},"rules":[{"org":"acme","model":"glm","limits":{"key":"unlimited","org":3}}]}`,
		do(t, h, http.MethodGet, "/api/limits", "").Body.String())
}

// However many there are, what is sent is bounded.
func TestManyHolders(t *testing.T) {
	reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: inflight.Unlimited})})
	h := newConsole(reg)
	long := strings.Repeat("ä", 5_000)
	for i := range 10_000 {
		if i == 500 {
			long = "short"
		}
		hold(t, reg, inflight.Key{Org: strconv.Itoa(i), Model: long}, inflight.Label(long))
	}
	hold(t, reg, acme, inflight.Label("needle"))
	state := do(t, h, http.MethodGet, "/api/state", "").Body
	require.Less(t, state.Len(), 2_000_000)
	parts := decode[map[string]map[string]any](t, state)
	for part, listed := range map[string]int{"slots": 500, "keys": 100} {
		require.Len(t, parts[part]["items"], listed)
		require.InEpsilon(t, 10_001, parts[part]["total"], 0)
		require.InEpsilon(t, 10_001-listed, parts[part]["more"], 0)
	}
	label, _ := items(t, parts["slots"], "label")[0].(string)
	require.Len(t, label, 1023) // to the last whole rune
	require.True(t, strings.HasSuffix(label, "ä…"))

	found := decode[map[string]map[string]any](t, do(t, h, http.MethodGet, "/api/state?q=needle", "").Body)
	require.Equal(t, []any{"10001"}, items(t, found["slots"], "id"))
	require.Len(t, items(t, get(t, h, "/api/slots?limit=10000"), "id"), 10_000)
	require.Len(t, items(t, get(t, h, "/api/slots"), "id"), 500)
}

func TestHeaders(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	for _, target := range []string{"/?format=html", "/?format=text", "/api/slots", "/nothing", "/api/slots?limit=0"} {
		header := do(t, h, http.MethodGet, target, "").Header()
		policy := header.Get("Content-Security-Policy")
		for _, directive := range []string{
			"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
			"require-trusted-types-for 'script'", "trusted-types 'none'",
		} {
			require.Contains(t, strings.Split(policy, "; "), directive)
		}
		require.NotContains(t, policy, "unsafe")
		require.Regexp(t, `script-src 'sha256-[^ ]+';`, policy)
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", header.Get("Cache-Control"))
		require.Equal(t, "no-referrer", header.Get("Referrer-Policy"))
		require.Equal(t, "same-origin", header.Get("Cross-Origin-Resource-Policy"))
		require.Equal(t, "same-origin", header.Get("Cross-Origin-Opener-Policy"))
	}
}

// The page is one file that loads nothing, and whose policy covers all of its style and script.
func TestPageStandsAlone(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	w := do(t, h, http.MethodGet, "/", "", "Accept", "text/html,*/*;q=0.8")
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, "Accept", w.Header().Get("Vary"))
	html := w.Body.String()
	require.Equal(t, 1, strings.Count(html, "<style"))
	require.Equal(t, 1, strings.Count(html, "<script"))
	require.NotRegexp(t, regexp.MustCompile(`(?i)\s(src|style|on[a-z]+)=["']`), html)
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		u, err := url.Parse(link[1])
		require.NoError(t, err)
		require.True(t, u.Scheme == "data" || u.Scheme == "" && u.Host == "", link[1])
	}
	for _, danger := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("} {
		require.NotContains(t, html, danger)
	}
}

func TestHandlerNeedsARegistry(t *testing.T) {
	require.PanicsWithValue(t, "console: Handler: no registry", func() { console.Handler(nil, console.Config{}) })
}
