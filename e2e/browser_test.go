package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// A browser is a headless Chromium that knows nothing and talks to nobody but the servers of the tests.
type browser struct {
	ctx context.Context //nolint:containedctx // chromedp keeps the browser in it
}

// startBrowser starts one that ends with the test. To start takes seconds, so tests share it.
func startBrowser(t *testing.T) browser {
	t.Helper()
	allocator, cancel := chromedp.NewExecAllocator(t.Context(),
		chromedp.ExecPath(installed(t, "chromium", "chromium")), chromedp.UserDataDir(t.TempDir()),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.WindowSize(1360, 1000), chromedp.WSURLReadTimeout(later),
	)
	quiet := chromedp.WithErrorf(func(string, ...any) {}) // it does not know all that a newer Chromium reports
	ctx, _ := chromedp.NewContext(allocator, quiet)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser to end
		cancel()
	})
	require.NoError(t, chromedp.Run(ctx))
	return browser{ctx}
}

// later is when what a browser does at once has happened, on a machine that does much else.
const later = time.Minute

// A tab shows a page. What goes wrong in it, be it an exception, a breach of the page's own policy or a dialog that
// nobody asked for, fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it

	mu       sync.Mutex
	trouble  []string
	urls     map[network.RequestID]string
	statuses map[string]int64 // of the latest answer to each URL
}

// open opens a tab.
func (b browser) open(t *testing.T, url string) *tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(b.ctx)
	p := &tab{t: t, ctx: ctx, urls: make(map[network.RequestID]string), statuses: make(map[string]int64)}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.trouble)
	})
	chromedp.ListenTarget(ctx, p.note)
	require.NoError(t, chromedp.Run(ctx)) // the tab lives as long as the context of the first call
	p.do(network.Enable(), log.Enable(), chromedp.Navigate(url))
	return p
}

// note writes down what the browser reports.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.trouble = append(p.trouble, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork {
			p.trouble = append(p.trouble, e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		p.trouble = append(p.trouble, "dialog: "+e.Message)
	case *network.EventRequestWillBeSent:
		p.urls[e.RequestID] = e.Request.URL
	case *network.EventResponseReceivedExtraInfo: // also of what the page itself is not let see
		p.statuses[p.urls[e.RequestID]] = e.StatusCode
	}
}

// complains waits until the browser has complained of something that the test has done, and forgives it.
func (p *tab) complains(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		before := len(p.trouble)
		p.trouble = slices.DeleteFunc(p.trouble, func(s string) bool { return strings.Contains(s, text) })
		return len(p.trouble) < before
	}, later, tick)
}

// status returns that of the latest answer to a URL, 0 if there is none.
func (p *tab) status(url string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.statuses[url]
}

func (p *tab) do(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, later)
	defer cancel()
	require.NoError(p.t, chromedp.Run(ctx, actions...))
}

// sees waits until an expression is true in the page.
func (p *tab) sees(expression string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		var is bool
		return chromedp.Run(p.ctx, chromedp.Evaluate("Boolean("+expression+")", &is)) == nil && is
	}, later, 50*time.Millisecond, expression)
}

// value evaluates an expression in the page.
func value[T any](p *tab, expression string) (v T) {
	p.t.Helper()
	p.do(chromedp.Evaluate(expression, &v))
	return v
}

// press presses keys, one after another.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// tabTo moves the focus with the tab key until it is on what a selector means.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range 200 {
		p.press(kb.Tab)
		if value[bool](p, "document.activeElement.matches("+quote(selector)+")") {
			return
		}
	}
	require.Fail(p.t, "the tab key does not reach it", selector)
}

// A look is how a person looks at a page.
type look struct {
	name, scheme  string
	width, height int64
	phone         bool
}

// shoot takes a screenshot, into the folder that SCREENSHOTS names if it is set.
func (p *tab) shoot(l look) string {
	p.t.Helper()
	var png []byte
	p.do(
		emulation.SetDeviceMetricsOverride(l.width, l.height, 2, l.phone),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}),
		chromedp.CaptureScreenshot(&png),
	)
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		folder = p.t.TempDir()
	}
	path := filepath.Join(folder, l.name+".png")
	require.NoError(p.t, os.WriteFile(path, png, 0o600))
	return path
}

// quote writes a string as JavaScript.
func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}
