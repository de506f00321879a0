package inflight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The words that stand for a number in the JSON of a limit.
const (
	wordUnlimited = "unlimited"
	wordBlocked   = "blocked"
)

// The JSON form of a table, for writing. For reading it is not enough: encoding/json would let pass a field written
// twice, or in another case, and so put another limit in force than the one the reader of the file saw.
type (
	tableJSON struct {
		Defaults limitsJSON `json:"defaults,omitzero"`
		Rules    []ruleJSON `json:"rules,omitempty"`
	}
	ruleJSON struct {
		Org    string     `json:"org,omitempty"`
		Model  string     `json:"model,omitempty"`
		Limits limitsJSON `json:"limits"`
	}
	limitsJSON struct {
		Key   limitJSON `json:"key,omitzero"`
		Org   limitJSON `json:"org,omitzero"`
		Model limitJSON `json:"model,omitzero"`
		Total limitJSON `json:"total,omitzero"`
	}
	limitJSON int
)

// MarshalJSON writes a limit that is set.
func (n limitJSON) MarshalJSON() ([]byte, error) {
	switch {
	case n == Unlimited:
		return json.Marshal(wordUnlimited)
	case n < 0:
		return json.Marshal(wordBlocked)
	default:
		return strconv.AppendInt(nil, int64(n), 10), nil
	}
}

// MarshalJSON writes the defaults and rules in the form that UnmarshalJSON reads, the rules in the order of Rules.
func (t *LimitTable) MarshalJSON() ([]byte, error) {
	var table tableJSON
	for _, r := range t.Rules() {
		l := limitsJSON{
			Key:   limitJSON(r.Limits.Key),
			Org:   limitJSON(r.Limits.Org),
			Model: limitJSON(r.Limits.Model),
			Total: limitJSON(r.Limits.Total),
		}
		if r.Key == (Key{}) {
			table.Defaults = l
			continue
		}
		table.Rules = append(table.Rules, ruleJSON{Org: r.Key.Org, Model: r.Key.Model, Limits: l})
	}
	return json.Marshal(table)
}

// UnmarshalJSON replaces the defaults and all rules by those of an object such as
//
//	{"defaults": {"key": 64, "total": 1024},
//	 "rules": [{"org": "acme", "limits": {"key": 128, "org": 300}},
//	           {"org": "acme", "model": "glm", "limits": {"key": "unlimited"}},
//	           {"model": "old", "limits": {"model": "blocked"}}]}
//
// A limit is an integer of at least 1, "unlimited" or "blocked". One that is left out is not set; a rule that sets none
// is no rule. An empty org or model is as good as left out.
//
// Anything else is an error that names the rule and the field: 0, negative and fractional numbers, null, other words, a
// field that is not known (fields are in lower case) or written twice, a rule given twice, a rule without org and
// model, text that is not UTF-8. An error in the syntax names the line; encoding/json reports it itself, without the
// line, if it is json.Unmarshal that calls. A load that fails leaves the table as it was.
func (t *LimitTable) UnmarshalJSON(data []byte) error {
	rules, err := parseTable(data)
	if err != nil {
		return fmt.Errorf("inflight: limit table: %w", err)
	}
	t.change(func(*limitRules) *limitRules { return rules })
	return nil
}

func parseTable(data []byte) (*limitRules, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the text is not UTF-8") // encoding/json would make all such names the same
	}
	var text json.RawMessage
	if err := json.Unmarshal(data, &text); err != nil { // from here on it is known to be well formed
		return nil, inLine(data, err)
	}
	fields, err := parseFields(text, "defaults", "rules")
	if err != nil {
		return nil, err
	}
	rules := new(limitRules)
	if text, ok := fields["defaults"]; ok {
		if rules.defaults, err = parseLimits(text); err != nil {
			return nil, fmt.Errorf("defaults: %w", err)
		}
	}
	if text, ok := fields["rules"]; ok {
		if rules.ofScope, err = parseRules(text); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// inLine adds the line to an error in the syntax, where there is no rule to name yet.
func inLine(data []byte, err error) error {
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:max(0, syntax.Offset-1)], []byte{'\n'}), err)
	}
	return err
}

func parseRules(text json.RawMessage) (ofScope [ScopeTotal]map[Key]Limits, err error) {
	var list []json.RawMessage
	if text[0] != '[' {
		return ofScope, fmt.Errorf("rules: write an array, not %s", describe(text))
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return ofScope, err
	}
	for s := range ofScope {
		ofScope[s] = make(map[Key]Limits)
	}
	first := make(map[Key]int, len(list))
	for i, text := range list {
		rule, err := parseRule(text)
		where := fmt.Sprintf("rules[%d]", i)
		if rule.Key != (Key{}) {
			where += " (" + ruleName(rule.Key) + ")"
		}
		if err != nil {
			return ofScope, fmt.Errorf("%s: %w", where, err)
		}
		if other, ok := first[rule.Key]; ok {
			return ofScope, fmt.Errorf("%s: given twice, first by rules[%d]: write one rule", where, other)
		}
		first[rule.Key] = i
		if rule.Limits != (Limits{}) {
			ofScope[kindOf(rule.Key)][rule.Key] = rule.Limits
		}
	}
	return ofScope, nil
}

// parseRule reads one rule. With an error, too, it returns what it could read of the key, to name the rule by.
func parseRule(text json.RawMessage) (LimitRule, error) {
	fields, err := parseFields(text, "org", "model", "limits")
	org, orgErr := parseName(fields, "org")
	model, modelErr := parseName(fields, "model")
	rule := LimitRule{Key: Key{Org: org, Model: model}}
	if err := cmp.Or(err, orgErr, modelErr); err != nil {
		return rule, err
	}
	if rule.Key == (Key{}) {
		return rule, errors.New("no org and no model: write one or both, or use defaults")
	}
	if text, ok := fields["limits"]; ok {
		if rule.Limits, err = parseLimits(text); err != nil {
			return rule, fmt.Errorf("limits: %w", err)
		}
	}
	return rule, nil
}

func parseName(fields map[string]json.RawMessage, field string) (name string, err error) {
	text, ok := fields[field]
	if !ok {
		return "", nil
	}
	if text[0] != '"' {
		return "", fmt.Errorf("%s: write a string, not %s", field, describe(text))
	}
	return name, json.Unmarshal(text, &name)
}

func parseLimits(text json.RawMessage) (l Limits, err error) {
	fields, err := parseFields(text, "key", "org", "model", "total")
	if err != nil {
		return l, err
	}
	for s := range Scope(scopes) {
		if text, ok := fields[s.String()]; ok {
			if *limitAt(&l, s), err = parseLimit(text); err != nil {
				return l, fmt.Errorf("%s is %w", s, err)
			}
		}
	}
	return l, nil
}

func parseLimit(text json.RawMessage) (int, error) {
	var word string
	if err := json.Unmarshal(text, &word); err == nil {
		switch word {
		case wordUnlimited:
			return Unlimited, nil
		case wordBlocked:
			return Blocked, nil
		}
	}
	if n, err := strconv.Atoi(string(text)); err == nil && n >= 1 {
		return n, nil
	}
	return 0, fmt.Errorf("%s: write an integer of at least 1, %q for no bound or %q to admit nothing, or leave it out",
		describe(text), wordUnlimited, wordBlocked)
}

// parseFields splits an object into its fields, all of which must be known and written once. If one is not, the error
// comes with the other fields.
func parseFields(object json.RawMessage, known ...string) (map[string]json.RawMessage, error) {
	if object[0] != '{' {
		return nil, fmt.Errorf("write an object, not %s", describe(object))
	}
	fields := make(map[string]json.RawMessage)
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil { // the brace
		return nil, err
	}
	var wrong error
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		name := fmt.Sprint(token) // a string
		_, twice := fields[name]
		switch {
		case twice:
			wrong = cmp.Or(wrong, fmt.Errorf("field %q is given twice", name))
		case !slices.Contains(known, name):
			wrong = cmp.Or(wrong, fmt.Errorf("unknown field %.40q: the fields are %q", name, known))
		default:
			fields[name] = value
		}
	}
	return fields, wrong
}

// describe says in an error what was found, without the length of what it may hold.
func describe(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		var s string
		if json.Unmarshal(value, &s) == nil {
			return fmt.Sprintf("%.40q", s)
		}
	}
	return fmt.Sprintf("%.40s", value)
}
