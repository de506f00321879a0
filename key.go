package inflight

import "strconv"

// A Key names what a limit counts: the requests of one organisation on one model. Keys are compared as a pair, so
// {"a:b", "c"} and {"a", "b:c"} are two keys. An empty Org or Model is a name like any other.
type Key struct {
	Org   string // the customer
	Model string // the scarce thing the customer uses
}

// String returns the key for logs and people as org/model. A part that is empty, or holds a slash, a quote, a space
// or anything that does not print, is quoted as in Go source, so that no two keys read the same and no key breaks a
// log line.
func (k Key) String() string { return quotePart(k.Org) + "/" + quotePart(k.Model) }

func quotePart(s string) string {
	if s == "" {
		return `""`
	}
	for _, c := range s {
		if c == '/' || c == '"' || c == '\\' || c == ' ' || c == '\uFFFD' || !strconv.IsPrint(c) {
			return strconv.Quote(s)
		}
	}
	return s
}

// at returns the part of the key that counts in scope s. Every key of an org has the same at(ScopeOrg), and every
// key the same at(ScopeTotal).
func (k Key) at(s Scope) Key {
	switch s {
	case ScopeOrg:
		return Key{Org: k.Org}
	case ScopeModel:
		return Key{Model: k.Model}
	case ScopeTotal:
		return Key{}
	case ScopeKey:
	}
	return k
}

// A Scope says which of a key's limits is meant, from the narrowest to the widest.
type Scope uint8

// The scopes, in the order in which limits are checked.
const (
	ScopeKey   Scope = iota // the slots of one Org and Model
	ScopeOrg                // the slots of one Org over all models
	ScopeModel              // the slots of one Model over all orgs
	ScopeTotal              // all slots of the registry

	scopes = int(ScopeTotal) + 1
)

// String returns "key", "org", "model" or "total".
func (s Scope) String() string {
	switch s {
	case ScopeKey:
		return "key"
	case ScopeOrg:
		return "org"
	case ScopeModel:
		return "model"
	case ScopeTotal:
		return "total"
	default:
		return "scope(" + strconv.Itoa(int(s)) + ")"
	}
}
