package e2e_test

import (
	"context"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/console"
)

// The console, used as people use it.
func TestConsole(t *testing.T) {
	b := startBrowser(t)
	for name, test := range map[string]func(*testing.T, browser){
		"shows a stream come age and go": consoleShowsAStreamComeAgeAndGo,
		"searches":                       consoleSearches,
		"pauses":                         consolePauses,
		"cancels":                        consoleCancels,
		"by keyboard":                    consoleByKeyboard,
		"takes nothing for HTML":         consoleTakesNothingForHTML,
		"shows what would hide":          consoleShowsWhatWouldHide,
		"says what it filters by":        consoleSaysWhatItFiltersBy,
		"gives up its connection":        consoleGivesUpItsConnection,
		"does not wait for ever":         consoleDoesNotWaitForEver,
		"refuses other sites":            consoleRefusesOtherSites,
		"with ten thousand holders":      consoleWithTenThousandHolders,
		"reconnects":                     consoleReconnects,
		"knows another process":          consoleKnowsAnotherProcess,
		"is read only by default":        consoleIsReadOnlyByDefault,
		"sets limits":                    consoleSetsLimits,
		"shows what is granted":          consoleShowsWhatIsGranted,
		"looks":                          consoleLooks,
	} {
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

// slow are the flags of a gateway whose streams last as long as the test.
var slow = []string{"-tokens-per-second", "1"}

// A heldStream is a client's, of the gateway.
type heldStream struct {
	*http.Response
	ended chan error // what reading it to the end came to
}

// openStream asks the gateway for a stream under a name and returns when it has a slot.
func openStream(t *testing.T, g *gateway, id, model string) *heldStream {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"Hello"}]}`, model)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-acme-123")
	req.Header.Set("X-Request-Id", id)
	transport := &http.Transport{}
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	s := &heldStream{resp, make(chan error, 1)}
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		s.ended <- err
	}()
	t.Cleanup(func() {
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
	})
	return s
}

// openConsole opens the console of a gateway, or the page at a path below it.
func openConsole(t *testing.T, b browser, g *gateway, path string) *tab {
	t.Helper()
	p := b.open(t, g.url+"/debug/inflight/"+path)
	p.sees(`document.querySelector('#connection').dataset.state === 'live'`)
	return p
}

// row is the expression for the rows of holders with a text.
func row(text string) string {
	return `[...document.querySelectorAll('#slots tbody')].find(row => row.textContent.includes(` + quote(text) + `))`
}

const rows = `document.querySelectorAll('#slots tbody').length`

func consoleShowsAStreamComeAgeAndGo(t *testing.T, b browser) {
	t.Helper()
	g := startGateway(t, "{}", slow...)
	p := openConsole(t, b, g, "")
	p.sees(rows + ` === 0`)
	p.sees(`document.querySelector('#holders-count').textContent === 'nothing is in flight'`)

	s := openStream(t, g, "stuck-1", "glm")
	p.sees(row("stuck-1 /v1/chat/completions"))
	p.sees(row("acme/glm"))
	p.sees(`document.title === '1 in use – inflight gateway'`)
	p.sees(`document.querySelector('#keys').textContent.includes('1 of 64')`)
	for _, age := range []int{1, 2, 3} {
		p.sees(fmt.Sprintf(`parseInt(%s.querySelector('.age').textContent) >= %d`, row("stuck-1"), age))
	}
	require.NoError(t, s.Body.Close())
	p.sees(rows + ` === 0`)
}

func consoleSearches(t *testing.T, b browser) {
	t.Helper()
	g := startGateway(t, "{}", slow...)
	for i := range 3 {
		openStream(t, g, "hay-"+strconv.Itoa(i), "glm")
	}
	openStream(t, g, "needle", "llama")
	p := openConsole(t, b, g, "")
	p.sees(rows + ` === 4`)
	p.do(chromedp.SendKeys("#q", "NEEDLE"))
	p.sees(rows + ` === 1 && ` + row("needle"))
	p.sees(`document.querySelector('#holders-count').textContent.startsWith('1 of 4 holders')`)
	p.sees(`location.search === '?q=NEEDLE'`)                                  // the address can be passed on
	p.sees(`document.querySelector('#said').textContent === '1 holder found'`) // who does not see it is told
	p.do(chromedp.Evaluate(`document.querySelector('#q').select()`, nil), chromedp.KeyEvent(kb.Backspace))
	p.sees(rows + ` === 4`)

	// A key can be pressed to see who uses it, and the filter be taken away.
	p.do(chromedp.Evaluate(`[...document.querySelectorAll('#keys button')].find(b => b.textContent === 'acme/glm').click()`, nil))
	p.sees(rows + ` === 3 && !` + row("needle"))
	p.do(chromedp.Evaluate(`document.querySelector('.chip').click()`, nil))
	p.sees(rows + ` === 4`)

	p = openConsole(t, b, g, "?q=needle")
	p.sees(rows + ` === 1 && document.querySelector('#q').value === 'needle'`)
}

func consolePauses(t *testing.T, b browser) {
	t.Helper()
	g := startGateway(t, "{}", slow...)
	openStream(t, g, "first", "glm")
	p := openConsole(t, b, g, "")
	p.sees(row("first"))
	p.do(chromedp.Click("#pause"))
	p.sees(`document.querySelector('#pause').textContent === 'Resume'`)
	p.do(chromedp.Evaluate(`window.changes = 0; new MutationObserver(() => { changes++ }).observe(document.querySelector('main'),
		{subtree: true, childList: true, characterData: true, attributes: true})`, nil))

	openStream(t, g, "second", "glm")
	const held = `fetch('api/slots/1').then(a => a.json()).then(s => { window.held = s.held_seconds })`
	p.do(chromedp.Evaluate(held+`; window.from = null`, nil))
	p.sees(`(` + held + `, from ??= window.held ?? null, from !== null && window.held > from + 2.5)`) // the time of two updates passes
	require.Zero(t, value[int](p, "changes"))
	require.False(t, value[bool](p, "Boolean("+row("second")+")"))
	p.do(chromedp.Click("#pause"))
	p.sees(row("second"))
}

// The button does what it says to the very stream that it belongs to.
func consoleCancels(t *testing.T, b browser) {
	t.Helper()
	g := startGateway(t, "{}", slow...)
	other := openStream(t, g, "innocent", "glm")
	stuck := openStream(t, g, "stuck", "glm")
	p := openConsole(t, b, g, "")
	p.sees(row("stuck"))
	p.do(chromedp.Evaluate(row("stuck")+`.querySelector('[data-role=cancel]').click()`, nil))
	p.sees(`document.querySelector('#ask').open && document.querySelector('#ask-what').textContent.startsWith('stuck ')`)
	p.do(chromedp.Click("#ask-no"))
	p.sees(`!document.querySelector('#ask').open`)

	p.do(chromedp.Evaluate(row("stuck")+`.querySelector('[data-role=cancel]').click()`, nil), chromedp.Click("#ask-yes"))
	require.ErrorIs(t, <-stuck.ended, io.ErrUnexpectedEOF)
	p.sees(`!` + row("stuck"))
	p.sees(`document.querySelector('#said').textContent === 'Slot 2 is cancelled.'`)
	require.Empty(t, other.ended)

	// The last resort asks twice.
	p.do(chromedp.Click("[data-role=evict]"))
	p.sees(`document.querySelector('#ask-yes').disabled`)
	p.do(chromedp.Click("#ask-sure"))
	p.do(chromedp.Click("#ask-yes"))
	require.ErrorIs(t, <-other.ended, io.ErrUnexpectedEOF)
	p.sees(`document.querySelector('#facts').textContent.includes('Evicted1')`)
}

// All can be done without a mouse, and the focus stays where it is while rows come and go.
func consoleByKeyboard(t *testing.T, b browser) {
	t.Helper()
	g := startGateway(t, "{}", slow...)
	first := openStream(t, g, "first", "glm")
	stuck := openStream(t, g, "stuck", "glm")
	last := openStream(t, g, "last", "glm")
	p := openConsole(t, b, g, "")
	p.sees(rows + ` === 3`)

	p.tabTo("#q")
	p.press("s", "t", "u", "c", "k")
	p.sees(rows + ` === 1`)
	p.press(kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace)
	p.sees(rows + ` === 3`)

	p.tabTo("[data-slot='2'] [data-role=label]")
	p.press(kb.Enter)
	p.sees(row("stuck") + `.querySelector('.detail').textContent.includes('Acquired')`)
	p.sees(`document.activeElement.getAttribute('aria-expanded') === 'true'`)

	p.tabTo("[data-slot='2'] [data-role=cancel]")
	require.NoError(t, first.Body.Close())
	p.sees(rows + ` === 2`)
	require.True(t, value[bool](p, `document.activeElement.matches("[data-slot='2'] [data-role=cancel]")`))
	p.press(kb.Enter)
	p.sees(`document.activeElement.id === 'ask-yes'`)
	p.press(kb.Escape)
	p.sees(`document.activeElement.matches("[data-slot='2'] [data-role=cancel]")`)
	p.press(kb.Enter, kb.Enter)
	require.ErrorIs(t, <-stuck.ended, io.ErrUnexpectedEOF)
	p.sees(`document.activeElement.matches("[data-slot='3'] [data-role=cancel]")`) // its row has gone, the next one has it
	require.NoError(t, last.Body.Close())
	p.sees(rows + ` === 0`)
	p.sees(`document.activeElement.id === 'holders'`)
}

// What clients write is text, whatever it looks like.
func consoleTakesNothingForHTML(t *testing.T, b browser) {
	t.Helper()
	const evil = `<img src=x onerror=alert(1)>`
	hold := make(chan struct{})
	upstream := serve(t, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(hold) })
	g := startGateway(t, `{"defaults":{"key":1}}`, "-upstream", upstream.URL)
	s := openStream(t, g, evil, evil)
	p := openConsole(t, b, g, "")
	p.sees(row(evil + " /v1/chat/completions"))
	p.sees(row(`acme/"` + evil + `"`))
	p.sees(`document.querySelector('#keys').textContent.includes(` + quote(evil) + `)`)
	p.do(chromedp.Click("[data-role=label]"))
	p.sees(`document.querySelector('.detail').textContent.includes(` + quote(evil) + `)`)
	p.do(chromedp.Click("[data-role=key]"))
	p.sees(`document.querySelector('.chip').textContent.includes(` + quote(evil) + `)`)
	p.do(chromedp.Click("[data-role=cancel]"))
	p.sees(`document.querySelector('#ask-what').textContent.includes(` + quote(evil) + `)`)
	require.Zero(t, value[int](p, `document.querySelectorAll('img').length`))

	// If the page had a mistake, its policy would stop that.
	require.True(t, value[bool](p, `(() => { try { document.body.innerHTML = '<i>'; return false } catch { return true } })()`))
	p.complains("TrustedHTML")
	require.NoError(t, s.Body.Close())
}

// Characters that are not seen, or make others be read in another order, are written out, and keys that are cut to the
// same text have their rows.
func consoleShowsWhatWouldHide(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{})
	long := strings.Repeat("m", 1100)
	for _, key := range []inflight.Key{{Org: "a\u202eb", Model: "\u2028"}, {Org: "b", Model: long + "1"}, {Org: "b", Model: long + "2"}} {
		slot, err := reg.TryAcquire(key, inflight.Label("harmless \u202egnp.exe \U000e0041"))
		require.NoError(t, err)
		t.Cleanup(slot.Release)
	}
	p, _ := openOwn(t, b, reg, console.Config{Admin: true})
	p.sees(row(`"a\u{202e}b"/"\u{2028}""harmless \u{202e}gnp.exe \u{e0041}"`))
	p.do(chromedp.Click("[data-role=label]"), chromedp.Click("[data-role=cancel]"))
	p.sees(`document.querySelector('#ask-what').textContent.startsWith('"harmless \\u{202e}gnp.exe \\u{e0041}" · "a\\u{202e}b"')`)
	require.Equal(t, 2, value[int](p, `document.querySelectorAll('#ask-what bdi').length`))
	p.do(chromedp.Click("#ask-no"))
	require.False(t, value[bool](p, `/[\u2028\u202e\u{e0041}]/u.test(document.documentElement.outerHTML)`))

	require.Equal(t, 3, value[int](p, `document.querySelectorAll('#keys tbody').length`))
	require.Less(t, value[float64](p, row("b/mmm")+`.offsetHeight`), 80.0, "a long key does not fill the screen")
	p.do(chromedp.Evaluate(`[...document.querySelectorAll('#keys button')].find(b => b.textContent.startsWith('b/')).click()`, nil))
	p.sees(rows + ` === 2`)
}

func consoleSaysWhatItFiltersBy(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{})
	holdMany(t, reg, 1)
	s := serve(t, plain, console.Handler(reg, console.Config{}))
	for query, want := range map[string]string{
		"org=acme": "org acme", "model=glm": "model glm", "org=": `org ""`, "org=acme&model=": `key acme/""`, "org=acme&model=glm": "key acme/glm",
	} {
		p := b.open(t, s.URL+"/?"+query)
		p.sees(`document.querySelector('.chip').textContent === ` + quote(want))
		require.NotEqual(t, "none", value[string](p, `getComputedStyle(document.querySelector('#said')).display`), "what is said there is heard")
	}
}

// A browser has six connections to a server. Tabs that nobody sees hold none.
func consoleGivesUpItsConnection(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{})
	h := console.Handler(reg, console.Config{})
	var opened, streams atomic.Int64
	s := serve(t, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/events" {
			opened.Add(1)
			streams.Add(1)
			defer streams.Add(-1)
		}
		h.ServeHTTP(w, r)
	}))
	p := b.open(t, s.URL)
	p.sees(`document.title.startsWith('0 in use')`)
	require.EqualValues(t, 1, streams.Load())
	hide := func(hidden bool) {
		p.do(chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, 'hidden', {configurable: true, value: %t});
			document.dispatchEvent(new Event('visibilitychange'))`, hidden), nil))
	}
	hide(true)
	require.Eventually(t, func() bool { return streams.Load() == 0 }, later, tick)
	require.Equal(t, "inflight ", value[string](p, `document.title.slice(0, 9)`))
	holdMany(t, reg, 1)
	hide(false)
	p.sees(row("request-0") + ` && document.querySelector('#connection').dataset.state === 'live'`)
	require.EqualValues(t, 2, opened.Load())
	p.do(chromedp.Click("#pause"))
	hide(true)
	hide(false)
	require.Equal(t, "paused", value[string](p, `document.querySelector('#connection').dataset.state`))
}

// If an action gets no answer, people are told.
func consoleDoesNotWaitForEver(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{})
	holdMany(t, reg, 1)
	h := console.Handler(reg, console.Config{Admin: true})
	s := serve(t, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	}))
	p := b.open(t, s.URL)
	p.sees(row("request-0"))
	p.do(chromedp.Evaluate(`{ const real = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = ms => real(ms / 50) }`, nil))
	p.do(chromedp.Click("[data-role=cancel]"), chromedp.Click("#ask-yes"))
	p.sees(`document.querySelector('#said').textContent.startsWith('No answer in 10 s. It may still be done.')`)
}

// A page of somebody else's, in a browser that can reach the console, cannot act in it.
func consoleRefusesOtherSites(t *testing.T, b browser) {
	t.Helper()
	g := startGateway(t, "{}", slow...)
	s := openStream(t, g, "stuck", "glm")
	target := g.url + "/debug/inflight/api/slots/1/cancel"
	elsewhere := serve(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<form method="post" action="`+target+`"><button>Win</button></form>`)
	}))
	for _, url := range []string{elsewhere.URL, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)} {
		p := b.open(t, url)
		p.do(chromedp.Evaluate(`fetch(`+quote(target)+`, {method: 'POST', mode: 'no-cors'}).catch(() => {})`, nil))
		require.Eventually(t, func() bool { return p.status(target) == http.StatusForbidden }, later, tick)
		p = b.open(t, url)
		p.do(chromedp.Click("button"))
		p.sees(`document.body.textContent.includes('Requests from another site are refused')`)
	}
	require.Empty(t, s.ended)
	openConsole(t, b, g, "").do(chromedp.Evaluate(`fetch('api/slots/1/cancel', {method: 'POST'})`, nil))
	require.ErrorIs(t, <-s.ended, io.ErrUnexpectedEOF)
}

// openOwn opens a console over a registry of the test's own.
func openOwn(t *testing.T, b browser, reg *inflight.Registry, cfg console.Config) (*tab, *httptest.Server) {
	t.Helper()
	s := serve(t, plain, console.Handler(reg, cfg))
	p := b.open(t, s.URL)
	p.sees(`document.querySelector('#connection').dataset.state === 'live'`)
	return p, s
}

// holdMany takes n slots, until the test ends.
func holdMany(t *testing.T, reg *inflight.Registry, n int) []*inflight.Slot {
	t.Helper()
	slots := make([]*inflight.Slot, n)
	for i := range slots {
		var err error
		slots[i], err = reg.TryAcquire(acme, inflight.Label("request-"+strconv.Itoa(i)))
		require.NoError(t, err)
		t.Cleanup(slots[i].Release)
	}
	return slots
}

// However many hold, the page stays small, changes only what has changed, and finds each.
func consoleWithTenThousandHolders(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{Key: inflight.Unlimited})
	slots := holdMany(t, reg, 10_000)
	p, _ := openOwn(t, b, reg, console.Config{Admin: true})
	p.sees(rows + ` === 500`)
	p.sees(`document.querySelector('#holders-more').textContent.includes('9,500 more are not shown')`)
	require.Less(t, value[int](p, `document.querySelectorAll('*').length`), 10_000)

	p.do(chromedp.Evaluate(`document.querySelector("[data-slot='450']").kept = true`, nil))
	for _, slot := range slots[:400] {
		slot.Release()
	}
	p.sees(rows + ` === 500 && !document.querySelector("[data-slot='400']") && document.querySelector("[data-slot='900']")`)
	require.True(t, value[bool](p, `document.querySelector("[data-slot='450']").kept`))
	require.Equal(t, "401", value[string](p, `document.querySelector('#slots tbody').dataset.slot`))

	p.do(chromedp.SendKeys("#q", "request-9999"))
	p.sees(rows + ` === 1 && ` + row("request-9999"))
	require.True(t, value[bool](p, `document.querySelector('#holders-more').hidden`))
}

func consoleReconnects(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{})
	p, s := openOwn(t, b, reg, console.Config{})
	s.CloseClientConnections()
	p.sees(`document.querySelector('#connection').dataset.state === 'lost'`)
	holdMany(t, reg, 1)
	p.sees(`document.querySelector('#connection').dataset.state === 'live' && ` + row("request-0"))
}

// After a restart, or at another replica, the same numbers mean other slots. Nothing is shown of the old ones, and no
// button that was made for one acts on another.
func consoleKnowsAnotherProcess(t *testing.T, b browser) {
	t.Helper()
	var current atomic.Pointer[http.Handler]
	s := serve(t, plain, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*current.Load()).ServeHTTP(w, r)
	}))
	start := func(name string) []context.Context {
		reg := newRegistry(t, inflight.Limits{})
		var held []context.Context
		for i := range 3 {
			slot, err := reg.TryAcquire(acme, inflight.Label(name+"-"+strconv.Itoa(i)))
			require.NoError(t, err)
			t.Cleanup(slot.Release)
			held = append(held, slot.Context(t.Context()))
		}
		h := console.Handler(reg, console.Config{Admin: true})
		current.Store(&h)
		s.CloseClientConnections()
		return held
	}
	cancel := func(p *tab, label string) {
		p.do(chromedp.Evaluate(row(label)+`.querySelector('[data-role=cancel]').click()`, nil))
		p.sees(`document.querySelector('#ask').open`)
	}

	first := start("first")
	p := b.open(t, s.URL)
	p.sees(row("first-1"))
	p.do(chromedp.Evaluate(row("first-1")+`.querySelector('[data-role=label]').click()`, nil))
	cancel(p, "first-1")
	p.do(chromedp.Click("#ask-yes"))
	p.sees(row("first-1") + `.querySelector('.badge.asked')`)
	require.Error(t, first[1].Err())
	cancel(p, "first-0")

	second := start("second")
	p.sees(row("second-0") + ` && ` + rows + ` === 3 && !` + row("first-"))
	p.sees(`document.querySelector('#said').textContent.startsWith('Another process answers')`)
	require.Zero(t, value[int](p, `document.querySelectorAll('.detail, .badge, dialog[open]').length`))

	// A paused page does not know, but the console does.
	p.do(chromedp.Click("#pause"))
	third := start("third")
	cancel(p, "second-1")
	p.do(chromedp.Click("#ask-yes"))
	p.sees(row("third-0") + ` && !` + row("second-"))
	p.sees(`document.querySelector('#said').textContent.startsWith('This is another process')`)
	for _, ctx := range slices.Concat(second, third) {
		require.NoError(t, ctx.Err())
	}
}

func consoleIsReadOnlyByDefault(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{})
	holdMany(t, reg, 1)
	p, _ := openOwn(t, b, reg, console.Config{Table: inflight.NewLimitTable(inflight.Limits{Key: 7})})
	p.sees(row("request-0") + ` && document.querySelector('#limits').textContent.includes('defaults7')`)
	require.Zero(t, value[int](p, `document.querySelectorAll('.acts:not([hidden]), #rule:not([hidden])').length`))
}

func consoleSetsLimits(t *testing.T, b browser) {
	t.Helper()
	table := inflight.NewLimitTable(inflight.Limits{Key: 7})
	p, _ := openOwn(t, b, newRegistry(t, inflight.Limits{}), console.Config{Table: table, Admin: true})
	p.sees(`!document.querySelector('#rule').hidden`)
	p.do(chromedp.SendKeys("[name=org]", "a/b"), chromedp.SendKeys("[name=key-limit]", "0"), chromedp.Click("#rule button"))
	p.sees(`document.querySelector('#said').textContent.includes('write an integer of at least 1')`)
	p.do(chromedp.SetValue("[name=key-limit]", "unlimited"), chromedp.SendKeys("[name=org-limit]", "12"), chromedp.Click("#rule button"))
	p.sees(`document.querySelector('#limits').textContent.includes('"a/b" / every modelunlimited12––')`)
	rule := inflight.LimitRule{Key: inflight.Key{Org: "a/b"}, Limits: inflight.Limits{Key: inflight.Unlimited, Org: 12}}
	require.Contains(t, table.Rules(), rule)

	p.do(chromedp.Click(`[aria-label='Delete the rule: "a/b" / every model']`), chromedp.Click("#ask-yes"))
	p.sees(`!document.querySelector('#limits').textContent.includes('a/b')`)
	require.NotContains(t, table.Rules(), rule)
}

func consoleShowsWhatIsGranted(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{Key: 9})
	holdMany(t, reg, 1)
	p, _ := openOwn(t, b, reg, console.Config{})
	p.sees(`document.querySelector('#keys tbody').textContent.includes('1 of 9')`)
	require.False(t, value[bool](p, `document.querySelector('#keys').textContent.includes('granted')`))
	leases, err := reg.Lease(1, time.Second)
	require.NoError(t, err)
	held, _ := leases.Held(0, 100, true)
	for i := range held {
		leases.Answer(held[i:i+1], []inflight.Grant{{Granted: 2, Others: 7, Keep: -1}})
	}
	p.sees(`document.querySelector('#keys tbody').textContent.includes('granted 2, elsewhere 7')`)
}

func consoleLooks(t *testing.T, b browser) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{Key: 40})
	holdMany(t, reg, 36)
	table := inflight.NewLimitTable(inflight.Limits{Key: 40, Org: 1_000_000, Model: 1_000_000, Total: 1_000_000})
	p, _ := openOwn(t, b, reg, console.Config{Admin: true, Table: table})
	p.sees(rows + ` === 36 && document.querySelector('#limits').textContent.includes('defaults40')`)
	brightness := make(map[string]uint32)
	for _, l := range []look{
		{name: "light", scheme: "light", width: 1360, height: 1000},
		{name: "dark", scheme: "dark", width: 1360, height: 1000},
		{name: "phone", scheme: "light", width: 390, height: 844, phone: true},
	} {
		file, err := os.Open(p.shoot(l))
		require.NoError(t, err)
		img, err := png.Decode(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.Equal(t, int(2*l.width), img.Bounds().Dx())
		brightness[l.name], _, _, _ = img.At(4, img.Bounds().Dy()-4).RGBA()
		require.True(t, value[bool](p, `document.documentElement.scrollWidth <= innerWidth`), "%s: it does not scroll sideways", l.name)
	}
	require.Greater(t, brightness["light"], uint32(0xd000))
	require.Less(t, brightness["dark"], uint32(0x3000))
}

// The console works where routers of other kinds put it.
func TestConsoleBelowRouters(t *testing.T) {
	h := console.Handler(newRegistry(t, inflight.Limits{}), console.Config{})
	onChi := chi.NewRouter()
	onChi.Mount("/ops/inflight", h)
	gin.SetMode(gin.ReleaseMode)
	onGin := gin.New()
	onGin.Any("/ops/inflight/*any", gin.WrapH(h))
	onEcho := echo.New()
	onEcho.Any("/ops/inflight/*", echo.WrapHandler(h))
	onEcho.GET("/ops/inflight", func(c echo.Context) error { return c.Redirect(http.StatusFound, "/ops/inflight/") })
	for name, router := range map[string]http.Handler{"chi": onChi, "gin": onGin, "echo": onEcho} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, plain, router)
			for path, status := range map[string]int{
				"": 200, "/": 200, "/api/overview": 200, "/api/slots/7": 404, "/nothing": 404, "/api/nothing": 404,
			} {
				resp := get(t, s.Client(), s.URL+"/ops/inflight"+path)
				require.Equal(t, status, resp.StatusCode, path)
				require.NotEmpty(t, resp.Header.Get("Content-Security-Policy"), "it is the console that says so")
			}
		})
	}
}
