package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Words that a request may use as the value of a parameter.
const (
	stateLong  = "long_held"
	stateLost  = "lost"
	formatText = "text"
	formatHTML = "html"
)

// maxLimit bounds how many a request may ask for.
const maxLimit = 10_000

// A query is what a request asks for.
type query struct {
	filter
	limit  int
	format string
}

// A filter says which holders, waiters and keys are meant. It can be compared; the zero filter lets all through.
type filter struct {
	terms            string // words in lower case, separated by single spaces: all must be found
	state            string // stateLong, stateLost or "" for any
	org, model       string
	hasOrg, hasModel bool // an empty name is one like any other
}

// parse reads the parameters of a request, of which it may have only those that are known.
func parse(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("The query cannot be read: " + err.Error() + ".")
	}
	for name, given := range values {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return nil, badRequest(fmt.Sprintf("Unknown parameter %.40q: there are none here.", name))
		case !slices.Contains(known, name):
			return nil, badRequest(fmt.Sprintf("Unknown parameter %.40q: there are %s.", name, strings.Join(known, ", ")))
		case len(given) > 1:
			return nil, badRequest(fmt.Sprintf("The parameter %s is given %d times.", name, len(given)))
		case len(given[0]) > maxText:
			return nil, badRequest(fmt.Sprintf("The parameter %s has %d bytes: it may have %d.", name, len(given[0]), maxText))
		case !utf8.ValidString(given[0]):
			return nil, badRequest(fmt.Sprintf("The parameter %s is not UTF-8.", name))
		}
	}
	return values, nil
}

// parseQuery reads what a request asks for, by those of its parameters that are known.
func parseQuery(r *http.Request, known ...string) (query, error) {
	values, err := parse(r, known...)
	if err != nil {
		return query{}, err
	}
	q := query{limit: maxShown, format: values.Get("format")}
	q.terms = strings.Join(strings.Fields(strings.ToLower(values.Get("q"))), " ")
	q.org, q.hasOrg = values.Get("org"), values.Has("org")
	q.model, q.hasModel = values.Get("model"), values.Has("model")
	q.state = values.Get("state")
	if values.Has("limit") {
		q.limit, err = strconv.Atoi(values.Get("limit"))
	}
	switch {
	case err != nil || q.limit < 1 || q.limit > maxLimit:
		err = badRequest(fmt.Sprintf("limit is %.40q: write a number from 1 to %d.", values.Get("limit"), maxLimit))
	case q.state != "" && q.state != stateLong && q.state != stateLost:
		err = badRequest(fmt.Sprintf("state is %.40q: write %s or %s, or leave it out.", q.state, stateLong, stateLost))
	case q.format != "" && q.format != formatText && q.format != formatHTML:
		err = badRequest(fmt.Sprintf("format is %.40q: write %s or %s, or leave it out.", q.format, formatText, formatHTML))
	}
	return q, err
}
