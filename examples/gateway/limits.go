package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/inflight-go/inflight"
)

// A limitsFile keeps a LimitTable as a file says. It compares the whole file, which is small, so that it does not
// matter how the file is written: in place, in pieces, by rename or through a symbolic link. A file caught while it is
// written is not taken for a new version of it. It may be cut short: a piece of a JSON object is never a JSON object, so
// it is refused like any bad file, and read again soon. Or it may begin as the old version and end as the new one, which
// can well be JSON: readStable tells.
//
// What no reader can tell from a version is a file that is patched in the middle and then left so for a while. Whoever
// writes limits should write all of them to a new file and rename that, or at least truncate the old one first.
type limitsFile struct {
	path  string
	table *inflight.LimitTable
	text  []byte // as last seen, good or bad
	err   error  // why it is not in force
}

// load brings the table up to date. It returns whether anything is new, and why the file is not in force; then the
// table is left as it was.
func (f *limitsFile) load() (changed bool, err error) {
	text, err := readStable(f.read)
	switch {
	case f.text == nil: // the first time, or there was nothing to read
	case errors.Is(err, errChanging), err == nil && bytes.Equal(f.text, text):
		return false, f.err
	}
	if err == nil {
		err = f.table.UnmarshalJSON(text) // json.Unmarshal would not say in which line the syntax is wrong
	}
	if err != nil {
		err = fmt.Errorf("limits file %s: %w", f.path, err)
	}
	changed = text != nil || f.err == nil || f.err.Error() != err.Error()
	f.text, f.err = text, err
	return changed, err
}

// read reads the file. A pipe or a terminal would keep the gateway waiting, and has no second version.
func (f *limitsFile) read() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(f.path)
}

var errChanging = errors.New("the file changes while it is read")

// readStable returns what two reads in a row agree on. A read that a write overlaps may give the beginning of one version
// and the end of the next. The read after it begins later, when the beginning is that of the next one, too.
func readStable(read func() ([]byte, error)) ([]byte, error) {
	last, err := read()
	for range 4 {
		if err != nil {
			return nil, err
		}
		before := last
		if last, err = read(); err == nil && bytes.Equal(last, before) {
			return last, nil
		}
	}
	return nil, cmp.Or(err, errChanging)
}

// watch loads the file when it has changed, until ctx ends.
func (f *limitsFile) watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch changed, err := f.load(); {
		case !changed:
		case err != nil:
			log.Error("limits refused, the old ones stay", "err", err)
		default:
			log.Info("limits changed", "now", describe(f.table))
		}
	}
}

// describe says what the table holds in a line.
func describe(table *inflight.LimitTable) string {
	var rules []string
	for _, rule := range table.Rules() {
		text := []string{"default"}
		if rule.Key != (inflight.Key{}) {
			text[0] = orAny(rule.Key.Org) + "/" + orAny(rule.Key.Model)
		}
		for i, limit := range []int{rule.Limits.Key, rule.Limits.Org, rule.Limits.Model, rule.Limits.Total} {
			if limit != 0 {
				text = append(text, inflight.Scope(i).String()+"="+limitText(limit))
			}
		}
		rules = append(rules, strings.Join(text, " "))
	}
	if len(rules) == 0 {
		return "default key=" + strconv.Itoa(inflight.DefaultKeyLimit)
	}
	return strings.Join(rules, ", ")
}

func orAny(s string) string {
	if s == "" {
		return "*"
	}
	return s
}

func limitText(limit int) string {
	switch {
	case limit < 0:
		return "blocked"
	case limit == inflight.Unlimited:
		return "unlimited"
	default:
		return strconv.Itoa(limit)
	}
}
