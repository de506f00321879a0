package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/inflight-go/inflight"
)

// A limitsFile keeps a LimitTable as a file says. It compares the whole file, which is small, so that it does not
// matter how the file is written: in place, in pieces, by rename or through a symbolic link. A piece of a JSON object
// is never a JSON object, so a file caught half-written is refused like any bad one, and read again soon.
type limitsFile struct {
	path  string
	table *inflight.LimitTable
	text  []byte // as last seen, good or bad
	err   error  // why it is not in force
}

// load brings the table up to date. It returns whether anything is new, and why the file is not in force; then the
// table is left as it was.
func (f *limitsFile) load() (changed bool, err error) {
	text, err := os.ReadFile(f.path)
	switch {
	case err != nil:
		changed = f.err == nil || f.err.Error() != err.Error()
		f.text, f.err = nil, err
	case f.text == nil || !bytes.Equal(f.text, text):
		changed = true
		f.text, f.err = text, json.Unmarshal(text, f.table)
		if f.err != nil {
			f.err = fmt.Errorf("limits file %s: %w", f.path, f.err)
		}
	}
	return changed, f.err
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
