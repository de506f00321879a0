package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/inflight-go/inflight" // so that go test does not take a result from before a change for the latest
)

func TestParse(t *testing.T) {
	faults, err := parse("one\na.go\n-  x\n-\ty {\n+z\n+\tw\n\ntwo\nb.go\n-gone\n")
	require.NoError(t, err)
	require.Equal(t, []fault{
		{"one", "a.go", "x\ny {", "z\n\tw"},
		{"two", "b.go", "gone", ""},
	}, faults)
	for text, want := range map[string]string{
		"":                       `fault "" changes nothing`,
		"name":                   `fault "name" changes nothing`,
		"name\na.go\n+more":      `fault "name" replaces nothing`,
		"name\na.go\n-\n+more":   `fault "name" replaces nothing`,
		"name\na.go\n-x\n y":     `fault "name": what is this: " y"`,
		"name\na.go\n-x\n+y\n-z": `fault "name": what is this: "-z"`,
	} {
		_, err := parse(text)
		require.EqualError(t, err, "mutate: "+want, text)
	}
}

func TestApply(t *testing.T) {
	const text = "a\n\tif x {\n\t\ty()\n\t}\n\ty(z)\n"
	for _, c := range []struct {
		old, new, want string
		err            error
	}{
		{"if x {\ny()\n}", "y()", "a\n\ty()\n\ty(z)\n", nil},
		{"(z)", "", "a\n\tif x {\n\t\ty()\n\t}\n\ty\n", nil},
		{"y(", "", "", errAmbiguous},
		{"z()", "", "", errStale},
		{"x {\n}", "", "", errStale},
	} {
		got, err := fault{old: c.old, new: c.new}.apply(text)
		require.ErrorIs(t, err, c.err, c.old)
		require.Equal(t, c.want, got)
	}
}

// The list must keep up with the code. Whoever changes a line in it changes its fault as well.
func TestListFitsTheCode(t *testing.T) {
	faults, err := parse(list)
	require.NoError(t, err)
	names := make(map[string]bool)
	var wrong []error
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join("..", "..", f.file))
		require.NoError(t, err)
		if _, err = f.apply(string(text)); err != nil {
			wrong = append(wrong, fmt.Errorf("%v: %w", f, err))
		}
		require.False(t, names[f.String()], "%v: there are two", f)
		names[f.String()] = true
	}
	require.NoError(t, errors.Join(wrong...))
}
