package inflight_test

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// newTable returns a table with these rules, which must be valid. The defaults are the rule of Key{}.
func newTable(t *testing.T, rules ...inflight.LimitRule) *inflight.LimitTable {
	t.Helper()
	table := new(inflight.LimitTable)
	for _, r := range rules {
		require.NoError(t, table.Set(r.Key, r.Limits))
	}
	return table
}

// The most specific rule that sets a field gives it, whatever the others do. Each of the 16 sets of rules is tried for
// each field, with another set for each field at a time, so that no field can ride on another.
func TestLimitTablePrecedence(t *testing.T) {
	asked := inflight.Key{Org: "acme", Model: "glm"}
	order := []inflight.Key{asked, {Org: "acme"}, {Model: "glm"}, {}}
	for combination := range 16 {
		var rules [4]inflight.Limits
		var want inflight.Limits
		field := func(l *inflight.Limits, i int) *int { return []*int{&l.Key, &l.Org, &l.Model, &l.Total}[i] }
		for f := range 4 {
			set := (combination + 5*f) % 16
			for i := 3; i >= 0; i-- { // the more specific overwrites
				if set&(1<<i) != 0 {
					*field(&rules[i], f) = 100*(i+1) + f
					*field(&want, f) = 100*(i+1) + f
				}
			}
		}
		t.Run(fmt.Sprintf("%04b", combination), func(t *testing.T) {
			table := inflight.NewLimitTable(rules[3])
			for i, k := range order {
				require.NoError(t, table.Set(k, rules[i]))
			}
			require.Equal(t, want, table.Limits(asked))
			require.Equal(t, rules[3], table.Limits(inflight.Key{Org: "other", Model: "other"}))
		})
	}
}

func TestLimitTableRulesReachTheirKeysOnly(t *testing.T) {
	table := newTable(t,
		inflight.LimitRule{Key: inflight.Key{Org: "acme", Model: "glm"}, Limits: inflight.Limits{Key: 1}},
		inflight.LimitRule{Key: inflight.Key{Org: "acme"}, Limits: inflight.Limits{Key: 2}},
		inflight.LimitRule{Key: inflight.Key{Model: "glm"}, Limits: inflight.Limits{Key: 3}},
		inflight.LimitRule{Limits: inflight.Limits{Key: 4}},
	)
	for k, want := range map[inflight.Key]int{
		{Org: "acme", Model: "glm"}: 1,
		{Org: "acme", Model: "x"}:   2,
		{Org: "acme"}:               2,
		{Org: "x", Model: "glm"}:    3,
		{Model: "glm"}:              3,
		{Org: "glm", Model: "acme"}: 4,
		{Org: "glm"}:                4,
		{Model: "acme"}:             4,
		{}:                          4,
	} {
		require.Equal(t, inflight.Limits{Key: want}, table.Limits(k), k)
	}
}

func TestLimitTableZeroUnsetUnlimited(t *testing.T) {
	k := inflight.Key{Org: "acme", Model: "glm"}
	defaults := inflight.Limits{Key: 7, Org: 7, Model: 7, Total: 7}
	t.Run("in code", func(t *testing.T) {
		table := inflight.NewLimitTable(defaults)
		require.NoError(t, table.Set(k, inflight.Limits{Key: inflight.Unlimited, Org: inflight.Blocked, Total: 1}))
		want := inflight.Limits{Key: inflight.Unlimited, Org: inflight.Blocked, Model: 7, Total: 1}
		require.Equal(t, want, table.Limits(k), "0 is not set, the others are")
		table.Delete(inflight.Key{})
		want.Model = 0
		require.Equal(t, want, table.Limits(k), "nobody sets it")
	})
	t.Run("in JSON", func(t *testing.T) {
		var table inflight.LimitTable
		require.NoError(t, json.Unmarshal([]byte(`{
			"defaults": {"key": 7, "org": 7, "model": 7, "total": 7},
			"rules": [{"org": "acme", "model": "glm", "limits": {"key": "unlimited", "org": "blocked", "total": 1}}]
		}`), &table))
		want := inflight.Limits{Key: inflight.Unlimited, Org: inflight.Blocked, Model: 7, Total: 1}
		require.Equal(t, want, table.Limits(k))
		for _, value := range []string{`0`, `-1`} {
			err := json.Unmarshal([]byte(`{"defaults": {"key": `+value+`}}`), &table)
			require.ErrorContains(t, err, "key is "+value+": write an integer of at least 1")
			require.Equal(t, want, table.Limits(k))
		}
	})
	t.Run("defaults below Blocked", func(t *testing.T) {
		table := inflight.NewLimitTable(inflight.Limits{Key: -2, Org: -1, Model: math.MinInt})
		want := inflight.Limits{Key: inflight.Blocked, Org: inflight.Blocked, Model: inflight.Blocked}
		require.Equal(t, want, table.Limits(k))
	})
}

func TestLimitTableSetRefuses(t *testing.T) {
	acme := inflight.Key{Org: "acme"}
	tests := map[string]struct {
		key    inflight.Key
		limits inflight.Limits
		want   string
	}{
		"key": {
			acme,
			inflight.Limits{Key: -2},
			`inflight: limits of org "acme": key is -2: use Blocked (-1) to admit nothing, 0 to set nothing`,
		},
		"org": {
			inflight.Key{Model: "a\nb"},
			inflight.Limits{Key: 1, Org: -3},
			`inflight: limits of model "a\nb": org is -3: use Blocked (-1) to admit nothing, 0 to set nothing`,
		},
		"model": {
			inflight.Key{Org: "a:b", Model: "c"},
			inflight.Limits{Key: 1, Model: -2},
			`inflight: limits of org "a:b", model "c": model is -2: use Blocked (-1) to admit nothing, 0 to set nothing`,
		},
		"total": {
			inflight.Key{},
			inflight.Limits{Key: 1, Total: -2},
			`inflight: limits of the defaults: total is -2: use Blocked (-1) to admit nothing, 0 to set nothing`,
		},
		"org not UTF-8": {
			inflight.Key{Org: "\xff"},
			inflight.Limits{Key: 1},
			`inflight: limits of org "\xff": the name is not UTF-8`,
		},
		"model not UTF-8": {
			inflight.Key{Org: "acme", Model: "\xfe"},
			inflight.Limits{Key: 1},
			`inflight: limits of org "acme", model "\xfe": the name is not UTF-8`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			table := newTable(t, inflight.LimitRule{Key: acme, Limits: inflight.Limits{Key: 1}})
			before := table.Rules()
			table.OnChange(func() { t.Error("told of a change") })
			require.EqualError(t, table.Set(test.key, test.limits), test.want)
			require.Equal(t, before, table.Rules())
		})
	}
}

func TestLimitTableRules(t *testing.T) {
	want := []inflight.LimitRule{
		{Key: inflight.Key{}, Limits: inflight.Limits{Key: 6}},
		{Key: inflight.Key{Model: "a"}, Limits: inflight.Limits{Key: 5}},
		{Key: inflight.Key{Model: "b"}, Limits: inflight.Limits{Key: 4}},
		{Key: inflight.Key{Org: "a"}, Limits: inflight.Limits{Key: 3}},
		{Key: inflight.Key{Org: "a", Model: "b:c"}, Limits: inflight.Limits{Key: 2}},
		{Key: inflight.Key{Org: "a:b", Model: "c"}, Limits: inflight.Limits{Key: 1}},
	}
	table := newTable(t, want[4], want[1], want[5], want[0], want[3], want[2])
	require.Equal(t, want, table.Rules())

	table.Rules()[0].Limits.Key = 9
	require.Equal(t, want, table.Rules(), "the caller's slice is the caller's")

	require.NoError(t, table.Set(want[3].Key, inflight.Limits{Org: 8}))
	want[3].Limits = inflight.Limits{Org: 8}
	require.Equal(t, want, table.Rules(), "the new rule replaces all fields of the old")

	require.NoError(t, table.Set(want[5].Key, inflight.Limits{}))
	require.Equal(t, want[:5], table.Rules(), "a rule that sets nothing is none")
	table.Delete(want[4].Key)
	require.Equal(t, want[:4], table.Rules())
	table.Delete(inflight.Key{})
	require.Equal(t, want[1:4], table.Rules())
	require.Equal(t, inflight.Limits{}, table.Limits(inflight.Key{Org: "x", Model: "x"}))
}

func TestLimitTableZeroValue(t *testing.T) {
	var table inflight.LimitTable
	require.Equal(t, inflight.Limits{}, table.Limits(inflight.Key{Org: "acme", Model: "glm"}))
	require.Empty(t, table.Rules())
	text, err := json.Marshal(&table)
	require.NoError(t, err)
	require.Equal(t, `{}`, string(text))
	table.Delete(inflight.Key{})
	table.Delete(inflight.Key{Org: "acme"})
	require.NoError(t, table.Set(inflight.Key{Org: "acme"}, inflight.Limits{Key: 1}))
	require.Equal(t, inflight.Limits{Key: 1}, table.Limits(inflight.Key{Org: "acme", Model: "glm"}))
}

func TestLimitTableLimitsAllocatesNothing(t *testing.T) {
	k := inflight.Key{Org: "acme", Model: "glm"}
	table := newTable(t,
		inflight.LimitRule{Key: k, Limits: inflight.Limits{Key: 1}},
		inflight.LimitRule{Key: inflight.Key{Org: "acme"}, Limits: inflight.Limits{Org: 2}},
		inflight.LimitRule{Key: inflight.Key{Model: "glm"}, Limits: inflight.Limits{Model: 3}},
		inflight.LimitRule{Limits: inflight.Limits{Total: 4}},
	)
	var got inflight.Limits
	require.Zero(t, testing.AllocsPerRun(100, func() { got = table.Limits(k) }))
	require.Equal(t, inflight.Limits{Key: 1, Org: 2, Model: 3, Total: 4}, got)
}

func TestLimitTableOnChange(t *testing.T) {
	acme := inflight.Key{Org: "acme"}
	one, two := inflight.Limits{Key: 1}, inflight.Limits{Key: 2}

	t.Run("after what took effect", func(t *testing.T) {
		table := new(inflight.LimitTable)
		var seen []int
		table.OnChange(func() { seen = append(seen, table.Limits(acme).Key) })
		require.NoError(t, table.Set(acme, one))
		require.NoError(t, table.Set(acme, one))
		require.NoError(t, table.Set(inflight.Key{}, two))
		require.NoError(t, table.Set(inflight.Key{}, two))
		table.Delete(acme)
		table.Delete(inflight.Key{})
		for range 2 {
			require.NoError(t, table.UnmarshalJSON([]byte(`{"defaults": {"key": 3}}`)))
		}
		require.Equal(t, []int{1, 1, 1, 1, 2, 0, 3, 3}, seen, "readers see the new limits by then")

		table.Delete(acme)
		require.NoError(t, table.Set(acme, inflight.Limits{}))
		table.Delete(inflight.Key{Org: "x", Model: "x"})
		require.Error(t, table.Set(acme, inflight.Limits{Key: -2}))
		require.Error(t, table.UnmarshalJSON([]byte(`{"defaults": {"key": 0}}`)))
		table.Delete(inflight.Key{})
		table.Delete(inflight.Key{})
		require.Len(t, seen, 9, "only the first deletion of the defaults changed anything")
	})

	t.Run("in order, on the caller's goroutine", func(t *testing.T) {
		table := new(inflight.LimitTable)
		var calls string // unguarded: the race detector sees a call from elsewhere
		for _, name := range []string{"a", "b", "c", "d"} {
			table.OnChange(func() { calls += name })
		}
		require.NoError(t, table.Set(acme, one))
		require.Equal(t, "abcd", calls)
	})

	t.Run("removal", func(t *testing.T) {
		table := new(inflight.LimitTable)
		var calls string
		f := func() { calls += "f" }
		first, second := table.OnChange(f), table.OnChange(f)
		table.OnChange(func() { calls += "g" })
		first()
		first()
		require.NoError(t, table.Set(acme, one))
		require.Equal(t, "fg", calls, "the other registration of the same function stays")
		second()
		require.NoError(t, table.Set(acme, two))
		require.Equal(t, "fgg", calls)
	})

	t.Run("removal lets go", func(t *testing.T) {
		table := new(inflight.LimitTable)
		held := new([1024]int)
		watch := weak.Make(held)
		table.OnChange(func() { held[0]++ })()
		runtime.GC()
		require.Nil(t, watch.Value())
		runtime.KeepAlive(table)
	})

	t.Run("within a call", func(t *testing.T) {
		table := new(inflight.LimitTable)
		var calls string
		var removeA, removeB func()
		removeA = table.OnChange(func() {
			calls += "a"
			removeA()
			removeB()
			table.OnChange(func() { calls += "c" })
			table.Delete(acme)
		})
		removeB = table.OnChange(func() { calls += "b" })
		require.NoError(t, table.Set(acme, one))
		require.Equal(t, "ac", calls, "c hears of the deletion, which came after it, and not of the Set before it")
		require.Empty(t, table.Rules())
	})

	t.Run("every method within a call", func(t *testing.T) {
		table := inflight.NewLimitTable(two)
		depth := 0
		table.OnChange(func() {
			if depth++; depth > 1 {
				return
			}
			require.Equal(t, one, table.Limits(acme))
			require.Len(t, table.Rules(), 2)
			require.NoError(t, table.Set(acme, two))
			text, err := table.MarshalJSON()
			require.NoError(t, err)
			require.NoError(t, table.UnmarshalJSON(text))
			table.Delete(acme)
		})
		require.NoError(t, table.Set(acme, one))
		require.Equal(t, 4, depth)
	})

	t.Run("panic", func(t *testing.T) {
		table := new(inflight.LimitTable)
		var calls string
		remove := table.OnChange(func() { panic("a") })
		table.OnChange(func() { calls += "b" })
		require.PanicsWithValue(t, "a", func() { _ = table.Set(acme, one) })
		require.Equal(t, one, table.Limits(acme), "the change stands")
		require.Equal(t, "b", calls)
		remove()
		require.NoError(t, table.Set(acme, two))
		require.Equal(t, "bb", calls)
	})

	t.Run("Goexit", func(t *testing.T) {
		table := new(inflight.LimitTable)
		table.OnChange(runtime.Goexit)
		called := false
		table.OnChange(func() { called = true })
		var wg sync.WaitGroup
		wg.Go(func() { table.Delete(acme); _ = table.Set(acme, one) })
		wg.Wait()
		require.True(t, called)
		require.Equal(t, one, table.Limits(acme))
	})

	t.Run("nil", func(t *testing.T) {
		require.PanicsWithValue(t, "inflight: LimitTable.OnChange: nil function",
			func() { new(inflight.LimitTable).OnChange(nil) })
	})
}

func TestLimitTableJSON(t *testing.T) {
	const text = `{"defaults": {"key": 64, "total": 1024},
		"rules": [{"org": "acme", "limits": {"key": 128, "org": 300}},
		          {"limits": {"key": "unlimited"}, "model": "glm", "org": "acme"},
		          {"model": "old", "limits": {"model": "block\u0065d"}, "org": ""},
		          {"org": "none", "limits": {}}, {"org": "none", "model": "none"}]}`
	want := []inflight.LimitRule{
		{Key: inflight.Key{}, Limits: inflight.Limits{Key: 64, Total: 1024}},
		{Key: inflight.Key{Model: "old"}, Limits: inflight.Limits{Model: inflight.Blocked}},
		{Key: inflight.Key{Org: "acme"}, Limits: inflight.Limits{Key: 128, Org: 300}},
		{Key: inflight.Key{Org: "acme", Model: "glm"}, Limits: inflight.Limits{Key: inflight.Unlimited}},
	}
	var config struct{ Limits inflight.LimitTable }
	require.NoError(t, config.Limits.Set(inflight.Key{Org: "gone"}, inflight.Limits{Key: 1}))
	require.NoError(t, json.Unmarshal([]byte(`{"Limits": `+text+`}`), &config))
	require.Equal(t, want, config.Limits.Rules(), "a load replaces everything")

	got, err := json.Marshal(&config.Limits)
	require.NoError(t, err)
	require.Equal(t, `{"defaults":{"key":64,"total":1024},"rules":[`+ //nolint:testifylint // the very bytes
		`{"model":"old","limits":{"model":"blocked"}},`+
		`{"org":"acme","limits":{"key":128,"org":300}},`+
		`{"org":"acme","model":"glm","limits":{"key":"unlimited"}}]}`, string(got))

	for _, empty := range []string{`{}`, ` { "rules" : [ ] } `, `{"defaults": {}, "rules": []}`} {
		require.NoError(t, config.Limits.UnmarshalJSON([]byte(empty)))
		require.Empty(t, config.Limits.Rules(), empty)
	}
}

// Names are kept as they are, also those that look alike, and no two rules become one.
func TestLimitTableJSONRoundTrip(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{Key: 1, Org: math.MaxInt - 1, Model: inflight.Unlimited, Total: -1})
	names := []string{"", "a", "a:b", "b:c", "c", "A", "a ", "a\x00", "<a>&", `"a"`, "\u2028", "\uFFFD", "é", "e\u0301"}
	for i, org := range names {
		for j, model := range names {
			if org != "" || model != "" {
				require.NoError(t, table.Set(inflight.Key{Org: org, Model: model}, inflight.Limits{Key: 1 + i, Org: 1 + j}))
			}
		}
	}
	require.Len(t, table.Rules(), len(names)*len(names))
	text, err := json.Marshal(table)
	require.NoError(t, err)
	var loaded inflight.LimitTable
	require.NoError(t, json.Unmarshal(text, &loaded))
	require.Equal(t, table.Rules(), loaded.Rules())
	joined := [2]inflight.Key{{Org: "a:b", Model: "c"}, {Org: "a", Model: "b:c"}}
	require.NotEqual(t, loaded.Limits(joined[0]), loaded.Limits(joined[1]))
}

func TestLimitTableJSONErrors(t *testing.T) {
	const values = `: write an integer of at least 1, "unlimited" for no bound or "blocked" to admit nothing, or leave it out`
	tests := []struct{ text, want string }{
		{``, `line 1: unexpected end of JSON input`},
		{"\n{\n", `line 2: unexpected end of JSON input`},
		{"{\"a\n", `line 1: invalid character '\n' in string literal`},
		{`{} {}`, `line 1: invalid character '{' after top-level value`},
		{"{\n\"rules\": [\n,]}", `line 3: invalid character ',' looking for beginning of value`},
		{"{\"rules\": [{\"org\": \"\xff\", \"limits\": {\"key\": 1}}]}", `the text is not UTF-8`},
		{`null`, `write an object, not null`},
		{`[]`, `write an object, not an array`},
		{`"blocked"`, `write an object, not "blocked"`},
		{`{"Rules": []}`, `unknown field "Rules": the fields are ["defaults" "rules"]`},
		{
			`{"` + strings.Repeat("a", 1000) + `": []}`,
			`unknown field "` + strings.Repeat("a", 40) + `": the fields are ["defaults" "rules"]`,
		},
		{`{"rules": [], "rules": []}`, `field "rules" is given twice`},
		{`{"defaults": null}`, `defaults: write an object, not null`},
		{`{"defaults": 64}`, `defaults: write an object, not 64`},
		{`{"defaults": {"keys": 1}}`, `defaults: unknown field "keys": the fields are ["key" "org" "model" "total"]`},
		{`{"defaults": {"key": 1, "k\u0065y": 2}}`, `defaults: field "key" is given twice`},
		{`{"defaults": {"org": 0}}`, `defaults: org is 0` + values},
		{`{"defaults": {"model": -1}}`, `defaults: model is -1` + values},
		{`{"defaults": {"total": -9}}`, `defaults: total is -9` + values},
		{`{"rules": null}`, `rules: write an array, not null`},
		{`{"rules": {"org": "acme"}}`, `rules: write an array, not an object`},
		{`{"rules": [null]}`, `rules[0]: write an object, not null`},
		{`{"rules": [{"org": 3}]}`, `rules[0]: org: write a string, not 3`},
		{`{"rules": [{"org": "a", "model": null}]}`, `rules[0] (org "a"): model: write a string, not null`},
		{
			`{"rules": [{"ORG": "a", "model": "b"}]}`,
			`rules[0] (model "b"): unknown field "ORG": the fields are ["org" "model" "limits"]`,
		},
		{`{"rules": [{"org": "a", "org": "b"}]}`, `rules[0] (org "a"): field "org" is given twice`},
		{
			`{"rules": [{"org": "a"}, {"org": "", "limits": {"key": 1}}]}`,
			`rules[1]: no org and no model: write one or both, or use defaults`,
		},
		{
			`{"rules": [{"org": "a"}, {"model": "a"}, {"org": "a", "model": "", "limits": {"key": 1}}]}`,
			`rules[2] (org "a"): given twice, first by rules[0]: write one rule`,
		},
		{
			`{"rules": [{"org": "a:b", "model": "c"}, {"org": "a", "model": "b:c"}, {"model": "b:c", "org": "a"}]}`,
			`rules[2] (org "a", model "b:c"): given twice, first by rules[1]: write one rule`,
		},
		{`{"rules": [{"org": "a", "limits": null}]}`, `rules[0] (org "a"): limits: write an object, not null`},
		{
			`{"rules": [{"limits": {"Key": 1}, "org": "a\nb"}]}`,
			`rules[0] (org "a\nb"): limits: unknown field "Key": the fields are ["key" "org" "model" "total"]`,
		},
		{
			`{"rules": [{"org": "a", "limits": {"total": "blocked", "total": "blocked"}}]}`,
			`rules[0] (org "a"): limits: field "total" is given twice`,
		},
	}
	for value, shown := range map[string]string{
		`0`: `0`, `-0`: `-0`, `-1`: `-1`, `1.0`: `1.0`, `1.5`: `1.5`, `1e3`: `1e3`, `null`: `null`, `true`: `true`,
		`9223372036854775808`: `9223372036854775808`, `-9223372036854775809`: `-9223372036854775809`,
		strings.Repeat("9", 1000): strings.Repeat("9", 40), `"` + strings.Repeat("a", 1000) + `"`: `"` + strings.Repeat("a", 40) + `"`,
		`"64"`: `"64"`, `""`: `""`, `"Unlimited"`: `"Unlimited"`, `"a\u001bb"`: `"a\x1bb"`, `"\ud800"`: `"�"`,
		`{"key": 1}`: `an object`, `[1]`: `an array`,
	} {
		tests = append(tests, struct{ text, want string }{
			`{"rules": [{"limits": {"key": ` + value + `}, "model": "m", "org": "a:b"}]}`,
			`rules[0] (org "a:b", model "m"): limits: key is ` + shown + values,
		})
	}
	for _, test := range tests {
		t.Run(test.text[:min(len(test.text), 60)], func(t *testing.T) {
			table := newTable(t,
				inflight.LimitRule{Limits: inflight.Limits{Key: 1}},
				inflight.LimitRule{Key: inflight.Key{Org: "a"}, Limits: inflight.Limits{Key: 2}},
			)
			before := table.Rules()
			table.OnChange(func() { t.Error("told of a change") })
			require.EqualError(t, table.UnmarshalJSON([]byte(test.text)), "inflight: limit table: "+test.want)
			require.Equal(t, before, table.Rules())
			if json.Valid([]byte(test.text)) {
				err := json.Unmarshal([]byte(test.text), table)
				require.EqualError(t, err, "inflight: limit table: "+test.want)
			}
		})
	}
}
