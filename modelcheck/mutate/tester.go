package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ladder is how the tests are run: each way only if those before it have not noticed the fault, so cheap ones come first.
func ladder() [][]string {
	return [][]string{
		{"-short", "-timeout=1m", "."},
		{"-timeout=3m", ".", "./modelcheck"},
		{"-race", "-timeout=5m", "."},
	}
}

// A tester runs the tests of the library with faults in it.
type tester struct {
	root string // where the library is
	tmp  string // where the changed files are
}

func newTester(ctx context.Context) (*tester, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/inflight-go/inflight").Output()
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	return &tester{root: strings.TrimSpace(string(dir)), tmp: tmp}, err
}

func (t *tester) close() { _ = os.RemoveAll(t.tmp) }

var (
	errSurvived = errors.New("SURVIVED: no test fails")
	errBroken   = errors.New("BROKEN: it does not compile")
)

// judge returns what caught the fault.
func (t *tester) judge(ctx context.Context, f fault) (caught string, err error) {
	overlay, err := t.overlay(f)
	if err != nil {
		return "", err
	}
	for _, args := range ladder() {
		if caught, err = t.try(ctx, overlay, args); err != nil || caught != "" {
			return caught, err
		}
	}
	return "", errSurvived
}

// overlay writes what makes the compiler see the fault.
func (t *tester) overlay(f fault) (path string, err error) {
	file := filepath.Join(t.root, f.file)
	text, err := os.ReadFile(file) //nolint:gosec // faults.txt names it
	if err != nil {
		return "", err
	}
	changed, err := f.apply(string(text))
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(t.tmp, "")
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, f.file)
	if err := os.WriteFile(replacement, []byte(changed), 0o600); err != nil { //nolint:gosec // as above
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: replacement}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

var (
	buildFailed  = regexp.MustCompile(`(?m)^FAIL\s.*\[(build|setup) failed\]$`)
	testFailed   = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	panicked     = regexp.MustCompile(`(?m)^(panic|fatal error): .*`)
	stillRunning = regexp.MustCompile(`(?m)^\trunning tests:\n\s*(\S+)`)
)

// try runs the tests and returns the first that fails, empty if all pass.
func (t *tester) try(ctx context.Context, overlay string, args []string) (caught string, err error) {
	args = append([]string{"test", "-vet=off", "-failfast", "-overlay=" + overlay}, args...)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // args are those of ladder
	cmd.Dir = t.root
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return "", cmp.Or(ctx.Err(), err)
	case buildFailed.Match(out):
		return "", errBroken
	}
	for _, sign := range []*regexp.Regexp{testFailed, stillRunning, panicked} {
		if found := sign.FindSubmatch(out); found != nil {
			return string(found[len(found)-1]), nil
		}
	}
	return "it ends before its time", nil
}
