package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestLimitsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	table := inflight.NewLimitTable(inflight.Limits{Key: 7})
	file := limitsFile{path: path, table: table}
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	inForce := func(n int) {
		t.Helper()
		require.Equal(t, n, table.Limits(acme).Key)
	}

	for _, step := range []struct {
		name    string
		do      func()
		changed bool
		says    string // in the error, empty for none
		limit   int
	}{
		{"missing", func() {}, true, "no such file", 7},
		{"still missing", func() {}, false, "no such file", 7},
		{"written", func() { write(`{"defaults": {"key": 1}}`) }, true, "", 1},
		{"unchanged", func() {}, false, "", 1},
		{"changed, same length", func() { write(`{"defaults": {"key": 2}}`) }, true, "", 2},
		{"emptied", func() { write("") }, true, path, 2},
		{"half-written", func() { write(`{"defaults": {"k`) }, true, path, 2},
		{"still half-written", func() {}, false, path, 2},
		{"written to the end", func() { write(`{"defaults": {"key": 3}}`) }, true, "", 3},
		{"wrong in its syntax", func() { write("{\n\"defaults\": {\n\"key\": 3,}}") }, true, "line 3: invalid character", 3},
		{"refused by the table", func() { write(`{"defaults": {"key": 0}}`) }, true, path, 3},
		{"back to what it was", func() { write(`{"defaults": {"key": 3}}`) }, true, "", 3},
		{"deleted", func() { require.NoError(t, os.Remove(path)) }, true, "no such file", 3},
		{"still deleted", func() {}, false, "no such file", 3},
		{"a pipe", func() { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, true, "not a regular file", 3},
		{"no pipe any more", func() { require.NoError(t, os.Remove(path)) }, true, "no such file", 3},
		{"there again, as it was", func() { write(`{"defaults": {"key": 3}}`) }, true, "", 3},
	} {
		step.do()
		changed, err := file.load()
		require.Equal(t, step.changed, changed, step.name)
		if step.says == "" {
			require.NoError(t, err, step.name)
		} else {
			require.ErrorContains(t, err, step.says, step.name)
		}
		inForce(step.limit)
	}
}

// A read during a write may give the beginning of one version and the end of the next.
func TestReadStable(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		name  string
		reads []string // "": the read fails
		want  string
		err   error
	}{
		{"at rest", []string{"new", "new"}, "new", nil},
		{"replaced between the reads", []string{"old", "new", "new"}, "new", nil},
		{"torn", []string{"old end", "new end", "new end"}, "new end", nil},
		{"cut short", []string{"n", "new", "new"}, "new", nil},
		{"never at rest", []string{"1", "2", "3", "4", "5", "5"}, "", errChanging},
		{"not there", []string{""}, "", gone},
		{"deleted", []string{"old", ""}, "", gone},
		{"deleted when read for the last time", []string{"1", "2", "3", "4", ""}, "", gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readStable(func() ([]byte, error) {
				text := c.reads[0]
				c.reads = c.reads[1:]
				if text == "" {
					return nil, gone
				}
				return []byte(text), nil
			})
			require.Equal(t, c.want, string(got))
			require.ErrorIs(t, err, c.err)
		})
	}
}

// A file that is rewritten over and over while it is read, and seldom whole: what is in force is always a whole version.
func TestLimitsFileWhileItIsWritten(t *testing.T) {
	const versions, rules = 40, 2000
	path := filepath.Join(t.TempDir(), "limits.json")
	var wrote error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for version := 100; version < 100+versions && wrote == nil; version++ { // all of the same length
			text := fmt.Appendf(nil, `{"defaults": {"key": %d}, "rules": [{"model": "x"}`, version)
			for i := range rules {
				text = fmt.Appendf(text, `,{"org": "%d", "limits": {"key": %d}}`, i, version)
			}
			wrote = os.WriteFile(path, append(text, "]}"...), 0o600)
		}
	}()

	table := inflight.NewLimitTable(inflight.Limits{Key: 1})
	file := limitsFile{path: path, table: table}
	for last := false; !last; {
		select {
		case <-done:
			last = true
		default:
		}
		_, err := file.load()
		version := table.Limits(inflight.Key{}).Key
		for _, rule := range table.Rules() {
			if rule.Limits.Key != version {
				require.Failf(t, "of several versions", "%d and %d", version, rule.Limits.Key)
			}
		}
		if last {
			require.NoError(t, errors.Join(wrote, err))
			require.Equal(t, 100+versions-1, version)
		}
	}
}

func TestLimitsChangeWhileRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	replace := func(text string) {
		require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	replace(`{"defaults": {"key": 1}}`)
	p := start(t, "-limits", path, "-tokens-per-second", "1", "-drain", "0s")
	require.Contains(t, p.out, "default key=1")
	p.stream(t, chatPath, "1000")

	replace(`{"defaults": {"key": "lots"}}`)
	require.Eventually(t, func() bool { return p.logged("limits refused", "lots") }, soon, tick)
	require.Equal(t, http.StatusTooManyRequests, p.do(t, http.MethodPost, chatPath, ask(`"stream":true`)).StatusCode)

	replace(`{"defaults": {"key": 2}}`)
	require.Eventually(t, func() bool { return p.logged("limits changed", "default key=2") }, soon, tick)
	p.stream(t, chatPath, "1000")
	require.Equal(t, http.StatusTooManyRequests, p.do(t, http.MethodPost, chatPath, ask(`"stream":true`)).StatusCode)
}

func TestDescribe(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{})
	require.Equal(t, "default key=64", describe(table))
	require.NoError(t, table.Set(inflight.Key{}, inflight.Limits{Key: 8, Total: 100}))
	require.NoError(t, table.Set(inflight.Key{Org: "acme"}, inflight.Limits{Org: inflight.Unlimited}))
	require.NoError(t, table.Set(inflight.Key{Org: "acme", Model: "glm"}, inflight.Limits{Key: 9}))
	require.NoError(t, table.Set(inflight.Key{Model: "old"}, inflight.Limits{Model: inflight.Blocked}))
	for _, part := range []string{"default key=8 total=100", "acme/* org=unlimited", "acme/glm key=9", "*/old model=blocked"} {
		require.Contains(t, describe(table), part)
	}
}
