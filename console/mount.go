package console

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// below returns the part of the path below the console's mount point, without a leading slash: "" for the page.
//
// Where that is, is not known: it depends on what is around the handler. The pattern of a ServeMux (or chi) tells, if the
// prefix was not stripped; if it was, all that is left is below. In all other cases the end of the path tells, for there
// are few things to ask for.
func below(r *http.Request) string {
	whole := r.URL.Path
	if mount := subtree(r.Pattern); mount != "" {
		if rest, ok := strings.CutPrefix(whole, mount); ok {
			return rest
		}
	}
	if rest, ok := strings.CutPrefix(whole, "/api/"); ok && !strings.HasPrefix(r.RequestURI, whole) {
		return "api/" + rest
	}
	if i := strings.LastIndex("/"+whole, "/api/"); i >= 0 && !strings.HasSuffix(whole, "/") {
		return whole[i:]
	}
	return whole[strings.LastIndexByte(whole, '/')+1:]
}

// subtree returns the path of a pattern that stands for all below it, "" if the pattern is of another kind or says
// nothing about where the console is.
func subtree(pattern string) string {
	_, mount, _ := strings.Cut(pattern, "/") // what is before is a method and a host
	mount = strings.TrimSuffix(mount, "*")   // chi's
	if !strings.HasSuffix(mount, "/") || strings.ContainsAny(mount, "{*") {
		return ""
	}
	return "/" + mount
}

// withSlash returns where to go instead if the request is for the mount point without the slash at its end, from where
// the page's links would lead astray. It is relative, so that it holds whatever prefix proxies have added or removed.
func withSlash(r *http.Request) string {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || strings.HasSuffix(asked.Path, "/") {
		return ""
	}
	_, pattern, _ := strings.Cut(r.Pattern, "/")
	stripped := r.URL.Path == "" || r.URL.Path == "/"
	if !stripped && r.URL.Path != "/"+pattern {
		return ""
	}
	to := "./" + path.Base(asked.EscapedPath()) + "/"
	if asked.RawQuery != "" {
		to += "?" + asked.RawQuery
	}
	return to
}

// cleaned reports whether a ServeMux would take the path as it is, and not redirect to another that it made of it.
func cleaned(p string) bool {
	return path.Clean(p) == p
}
