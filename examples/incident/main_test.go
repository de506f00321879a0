package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The test binary is also the program, so that a test can run that.
func TestMain(m *testing.M) {
	if os.Getenv("INCIDENT_TEST_MAIN") != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// program runs the program in the folder dir.
func program(t *testing.T, dir string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), "INCIDENT_TEST_MAIN=1"), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Fake time needs the testing package, of which the user of the program shall see nothing.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	trace := columns + "\n2023-11-16 18:00:00,9,4000\n2023-11-16 18:10:00,9,20\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trace.csv"), []byte(trace), 0o600))
	out, errs, err := program(t, dir, "-trace", "trace.csv", "-tokens-per-second", "5", "-first-token", "1s", "-limit", "1",
		"-chart", "chart.svg")
	require.NoError(t, err)
	require.Empty(t, errs)
	require.Equal(t, strings.TrimLeft(`
2 requests in 10m0s from trace.csv, at 5 tokens per second
limit 1, response head after 1s

| design                               | admitted | refused | peak in flight | seconds above the limit |
| ---                                  |     ---: |    ---: |           ---: |                    ---: |
| counter in a TTL cache               |        2 |       0 |              2 |                     5.0 |
| slot given back at the response head |        2 |       0 |              2 |                     5.0 |
| inflight                             |        1 |       1 |              1 |                     0.0 |
`, "\n"), out)
	svg, err := os.ReadFile(filepath.Join(dir, "chart.svg"))
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(svg, new(struct{})))
	for _, label := range []string{
		"counter in a TTL cache: up to 2", "slot given back at the response head: up to 2", "inflight: up to 1", "the limit: 1",
	} {
		require.Contains(t, string(svg), label)
	}
}

func TestProgramFails(t *testing.T) {
	out, errs, err := program(t, t.TempDir(), "-trace", "none.csv")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Empty(t, out)
	require.Equal(t, "incident: open none.csv: no such file or directory\n", errs)
}

// The default traffic shows what the incident showed: about 92 in flight at a limit of 64, and never more than 64 with
// inflight.
func TestDefaults(t *testing.T) {
	cfg, err := parse([]string{"-chart", filepath.Join(t.TempDir(), "chart.png")})
	require.NoError(t, err)
	var outcomes []outcome
	requests, _, err := cfg.traffic()
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		outcomes, err = replayAll(requests, cfg.limit)
		require.NoError(t, err)
	})
	require.InDelta(t, 92, outcomes[0].peak, 8)
	require.Greater(t, outcomes[1].peak, outcomes[0].peak)
	require.Equal(t, 64, outcomes[2].peak)

	require.NoError(t, drawChart(outcomes, cfg.limit, cfg.chart))
	chart, err := os.ReadFile(cfg.chart)
	require.NoError(t, err)
	_, err = png.Decode(bytes.NewReader(chart))
	require.NoError(t, err)
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-tokens-per-second 5":             "-tokens-per-second is for a -trace",
		"-trace x -seed 2":                 "-seed is for traffic without -trace",
		"-trace x -demand 2":               "-demand is for traffic without -trace",
		"-trace x -tokens-per-second 0":    "-tokens-per-second is 0, must be above 0",
		"-trace x -tokens-per-second NaN":  "-tokens-per-second is NaN, must be above 0",
		"-trace x -tokens-per-second +Inf": "-tokens-per-second is +Inf, must be above 0",
		"-limit 0":                         "-limit is 0, must be at least 1",
		"-first-token -1s":                 "-first-token is -1s, must be 0 to 8784h0m0s",
		"-demand 0":                        "-demand is 0, must be above 0 and at most 10000",
		"-demand NaN":                      "-demand is NaN, must be above 0 and at most 10000",
		"-chart incident.gif":              `-chart is "incident.gif", must end in .svg or .png`,
		"trace.csv":                        `unexpected argument "trace.csv"`,
	} {
		_, err := parse(strings.Fields(args))
		require.EqualError(t, err, want)
	}
}

// Whoever cannot be written to gets to hear of it.
func TestRunFails(t *testing.T) {
	cfg, err := parse([]string{"-chart", filepath.Join(t.TempDir(), "none", "chart.png")})
	require.NoError(t, err)
	inTest := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
	require.ErrorIs(t, run(cfg, io.Discard, inTest), os.ErrNotExist)
	require.ErrorIs(t, run(cfg, failing{}, inTest), errFull)
}

var errFull = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }
