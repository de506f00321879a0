package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A fault is a small change to a file of the library that some test must notice.
type fault struct {
	name     string
	file     string // in the root of the library
	old, new string // lines; new may be empty
}

func (f fault) String() string { return f.file + ": " + f.name }

// parse reads faults. Each begins with its name and ends with an empty line; between are the file, the lines that go,
// behind a minus, and those that come in their place, behind a plus:
//
//	a late release frees another's slot
//	slot.go
//	-h.id != t.id
//	+false
//
// What goes may be less than a line, and is indented in the list as one likes.
func parse(text string) ([]fault, error) {
	var faults []fault
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) < 3 {
			return nil, fmt.Errorf("mutate: fault %q changes nothing", lines[0])
		}
		f := fault{name: lines[0], file: lines[1]}
		for _, line := range lines[2:] {
			switch {
			case strings.HasPrefix(line, "-") && f.new == "":
				f.old += strings.TrimSpace(line[1:]) + "\n"
			case strings.HasPrefix(line, "+"):
				f.new += line[1:] + "\n"
			default:
				return nil, fmt.Errorf("mutate: fault %q: what is this: %q", f.name, line)
			}
		}
		if strings.TrimSpace(f.old) == "" {
			return nil, fmt.Errorf("mutate: fault %q replaces nothing", f.name)
		}
		f.old, f.new = strings.TrimSuffix(f.old, "\n"), strings.TrimSuffix(f.new, "\n")
		faults = append(faults, f)
	}
	return faults, nil
}

var (
	errStale     = errors.New("STALE: what it changes is not in the file: adapt faults.txt")
	errAmbiguous = errors.New("AMBIGUOUS: what it changes is in the file more than once: say more in faults.txt")
)

// apply puts the fault into the text of its file.
func (f fault) apply(text string) (string, error) {
	lines := strings.Split(f.old, "\n")
	for i, line := range lines {
		lines[i] = regexp.QuoteMeta(line)
	}
	found := regexp.MustCompile(strings.Join(lines, `\n\s*`)).FindAllStringIndex(text, 2)
	switch len(found) {
	case 0:
		return "", errStale
	case 1:
		return text[:found[0][0]] + f.new + text[found[0][1]:], nil
	default:
		return "", errAmbiguous
	}
}
