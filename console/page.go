package console

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// pageHTML is the whole page: markup, style and script, with nothing about any registry in it.
//
//go:embed page.html
var pageHTML string

// A page is what browsers get.
type page struct {
	html   string
	policy string // the Content-Security-Policy
}

// newPage makes the policy: the style and the script of the page, by their hashes, and talking to where it came from.
// With trusted types no script can put text where a browser would take it for HTML.
func newPage() page {
	return page{html: pageHTML, policy: strings.Join([]string{
		"default-src 'none'",
		"style-src '" + hashOf("style") + "'",
		"script-src '" + hashOf("script") + "'",
		"img-src data:", // the icon
		"connect-src 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; ")}
}

// hashOf returns the hash of what is inside the only element of that name.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageHTML, "<"+element+">")
	inside, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(inside))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// root answers GET of the mount point: the page for browsers, text for everybody else.
func (h *handler) root(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, "q", "org", "model", "state", "limit", "format")
	if err != nil {
		failWith(w, err)
		return
	}
	w.Header().Set("Vary", "Accept")
	if q.format == formatText || q.format == "" && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.text(w, q)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(h.page.html))
}
