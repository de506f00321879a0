package inflight_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Any text is either an error that leaves the table as it was, or means what a plain reading of it with encoding/json
// says, and comes back from a round trip as the same rules.
func FuzzLimitTableJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, ``, `{} {}`, `{"rules": [{}]}`, `{"rules": [{"org": "a", "limits": {}}]}`,
		`{"defaults": {"key": 64, "total": 1024}, "rules": [{"org": "acme", "limits": {"key": 128, "org": 300}},
			{"org": "acme", "model": "glm", "limits": {"key": "unlimited"}}, {"model": "old", "limits": {"model": "blocked"}}]}`,
		`{"rules": [{"org": "a:b", "model": "c", "limits": {"key": 1}}, {"org": "a", "model": "b:c", "limits": {"key": 2}}]}`,
		`{"rules": [{"org": "a", "model": ""}, {"org": "a", "limits": {"key": 1}}]}`,
		`{"rules": [{"org": "\ud800\u0000\u2028<", "limits": {"key": 9223372036854775807}}]}`,
		`{"defaults": {"key": 0}}`, `{"defaults": {"key": -1}}`, `{"defaults": {"key": 1e3}}`, `{"defaults": {"key": 1.0}}`,
		`{"defaults": {"key": null}}`, `{"defaults": {"key": "64"}}`, `{"defaults": {"key": 99999999999999999999}}`,
		`{"defaults": {"key": 1, "key": 2}}`, `{"defaults": {"Key": 1}}`, `{"defaults": null, "rules": null}`,
		`{"defaults": {"key": {"a": [1]}}}`, "{\"rules\": [{\"org\": \"\xff\"}]}", "{\"rules\": [{\"org\": \"\x7f\u202e\"}], \"x\": 1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table := inflight.NewLimitTable(inflight.Limits{Key: 1})
		require.NoError(t, table.Set(inflight.Key{Org: "acme"}, inflight.Limits{Key: 2}))
		before := table.Rules()
		if err := table.UnmarshalJSON(data); err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "inflight: limit table: "), err)
			require.Equal(t, -1, strings.IndexFunc(err.Error(), unicode.IsControl), err)
			require.Equal(t, before, table.Rules())
			return
		}
		rules := table.Rules()
		require.Equal(t, plainRules(t, data), rules)

		text, err := json.Marshal(table)
		require.NoError(t, err)
		var loaded inflight.LimitTable
		require.NoError(t, json.Unmarshal(text, &loaded))
		require.Equal(t, rules, loaded.Rules())
		again, err := json.Marshal(&loaded)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again)) //nolint:testifylint // the very bytes
	})
}

// plainRules reads the JSON of a valid table in the most direct way.
func plainRules(t *testing.T, data []byte) []inflight.LimitRule {
	t.Helper()
	type limits map[string]any
	var table struct {
		Defaults limits
		Rules    []struct {
			Org, Model string
			Limits     limits
		}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&table))

	var rules []inflight.LimitRule
	add := func(k inflight.Key, l limits) {
		field := func(name string) int {
			switch v := l[name].(type) {
			case nil:
				return 0
			case json.Number:
				n, err := v.Int64()
				require.NoError(t, err)
				require.Positive(t, n)
				return int(n)
			default:
				return map[any]int{"unlimited": inflight.Unlimited, "blocked": inflight.Blocked}[v]
			}
		}
		set := inflight.Limits{Key: field("key"), Org: field("org"), Model: field("model"), Total: field("total")}
		if set != (inflight.Limits{}) {
			rules = append(rules, inflight.LimitRule{Key: k, Limits: set})
		}
	}
	add(inflight.Key{}, table.Defaults)
	for _, r := range table.Rules {
		add(inflight.Key{Org: r.Org, Model: r.Model}, r.Limits)
	}
	slices.SortFunc(rules, func(a, b inflight.LimitRule) int {
		return cmp.Or(cmp.Compare(a.Key.Org, b.Key.Org), cmp.Compare(a.Key.Model, b.Key.Model))
	})
	return rules
}
