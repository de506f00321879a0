package inflight_test

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func keyOf(org, model string) inflight.Key { return inflight.Key{Org: org, Model: model} }

func TestKeyString(t *testing.T) {
	for k, want := range map[inflight.Key]string{
		keyOf("acme", "glm"):            `acme/glm`,
		keyOf("a:b", "c"):               `a:b/c`,
		keyOf("größe", "模型"):            `größe/模型`,
		keyOf("", "glm"):                `""/glm`,
		keyOf("acme", ""):               `acme/""`,
		keyOf("", ""):                   `""/""`,
		keyOf("a/b", "c"):               `"a/b"/c`,
		keyOf("a", "b/c"):               `a/"b/c"`,
		keyOf(`""`, "m"):                `"\"\""/m`,
		keyOf(`a\`, "m"):                `"a\\"/m`,
		keyOf("a b", "m"):               `"a b"/m`,
		keyOf("a\nb", "m\r"):            `"a\nb"/"m\r"`,
		keyOf("\x1b[2J", "\x7f"):        `"\x1b[2J"/"\x7f"`,
		keyOf("\u202egla", "\u00a0"):    `"\u202egla"/"\u00a0"`, // turns text around, looks like a space
		keyOf("\u2028", "\u200b"):       `"\u2028"/"\u200b"`,    // breaks a line, cannot be seen
		keyOf("\xff", "\uFFFD"):         "\"\\xff\"/\"\uFFFD\"", // not UTF-8, and what is shown in its place
		keyOf("\xff\uFFFD", "\x00\x80"): "\"\\xff\uFFFD\"/\"\\x00\\x80\"",
	} {
		require.Equal(t, want, k.String())
		require.Equal(t, want, fmt.Sprint(k))
	}
}

// Whatever the parts hold, the string prints on one line, and the key can be read back from it: so no two keys share it.
func FuzzKeyString(f *testing.F) {
	for _, part := range []string{"", "a", "a/b", `a"`, `"a"`, `\`, "a b", "a\nb", "\xff", "\uFFFD", "\u202e", "\x00", `"/"`} {
		f.Add(part, "m")
		f.Add("o", part)
	}
	f.Fuzz(func(t *testing.T, org, model string) {
		text := keyOf(org, model).String()
		for _, c := range text {
			require.True(t, strconv.IsPrint(c), "%q in %q", c, text)
		}
		gotOrg, rest := readPart(t, text)
		require.True(t, strings.HasPrefix(rest, "/"), text)
		gotModel, rest := readPart(t, rest[1:])
		require.Empty(t, rest, text)
		require.Equal(t, keyOf(org, model), keyOf(gotOrg, gotModel))
	})
}

// readPart reads the part that text begins with: a Go string, or all up to a slash.
func readPart(t *testing.T, text string) (part, rest string) {
	t.Helper()
	if !strings.HasPrefix(text, `"`) {
		n := len(text)
		if i := strings.IndexByte(text, '/'); i >= 0 {
			n = i
		}
		require.NotZero(t, n, "an empty part must be seen: %q", text)
		require.NotContains(t, text[:n], `"`)
		return text[:n], text[n:]
	}
	quoted, err := strconv.QuotedPrefix(text)
	require.NoError(t, err, text)
	part, err = strconv.Unquote(quoted)
	require.NoError(t, err, text)
	return part, text[len(quoted):]
}

// The case keys-joined: what reads the same when joined is two keys all the same.
func TestKeysJoined(t *testing.T) {
	logs := new(records)
	r := registryOf(t, inflight.Config{
		Limits: inflight.Fixed(inflight.Limits{Key: 1, Org: 1, Model: 1}), SweepInterval: -1, LongHeld: 1, Logger: slog.New(logs),
	})
	for _, pair := range [][2]inflight.Key{
		{keyOf("a:b", "c"), keyOf("a", "b:c")},
		{keyOf("a/b", "c"), keyOf("a", "b/c")},
		{keyOf("ab", ""), keyOf("", "ab")},
		{keyOf("", "a"), keyOf(`""`, "b")},
	} {
		var slots []*inflight.Slot
		for i, k := range pair {
			slots = append(slots, take(t, r, k))
			refuses(t, r, k)
			require.Equal(t, 1, r.InUse(k))
			require.Len(t, r.Keys(0), i+1)
		}
		r.Sweep()
		lines := logs.take()
		require.Len(t, lines, 2)
		require.NotEqual(t, lines[0].attrs["key"], lines[1].attrs["key"])
		releaseAll(slots)
		requireEmpty(t, r)
	}
}

// An empty name is a name: it has limits of its own, and others do not count there.
func TestEmptyNames(t *testing.T) {
	r := newRegistry(t, inflight.Limits{Org: 2, Model: 3})
	var slots []*inflight.Slot
	for _, model := range []string{"", "glm"} {
		slots = append(slots, take(t, r, keyOf("", model)))
	}
	require.Equal(t, inflight.ScopeOrg, refused(t, r, keyOf("", "qwen")).Scope)
	for _, org := range []string{"acme", "zebra"} {
		slots = append(slots, take(t, r, keyOf(org, "")))
	}
	require.Equal(t, inflight.ScopeModel, refused(t, r, keyOf("other", "")).Scope)
	slots = append(slots, take(t, r, keyOf("acme", "glm")))
	releaseAll(slots)
	requireEmpty(t, r)
}

func TestScopeString(t *testing.T) {
	for scope, want := range map[inflight.Scope]string{
		inflight.ScopeKey: "key", inflight.ScopeOrg: "org", inflight.ScopeModel: "model", inflight.ScopeTotal: "total",
		inflight.Scope(9): "scope(9)",
	} {
		require.Equal(t, want, scope.String())
	}
}
