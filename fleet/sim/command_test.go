package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCommand(t *testing.T) {
	virtual := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
	dir := t.TempDir()
	to := output{page: filepath.Join(dir, "page.md"), chart: filepath.Join(dir, "chart.png")}
	p := small()
	p.processes, p.warm, p.span = 10, time.Second, time.Second

	require.Error(t, run(*p, output{page: to.page}, nil, virtual), "there is no such page")
	require.NoError(t, os.WriteFile(to.page, []byte("no markers"), 0o600))
	require.ErrorContains(t, run(*p, output{page: to.page}, nil, virtual), "has no lines")
	require.NoError(t, os.WriteFile(to.page, []byte("before\n"+begin+"of yesterday\n"+end+"after\n"), 0o600))

	require.NoError(t, run(*p, to, nil, virtual))
	page, err := os.ReadFile(to.page)
	require.NoError(t, err)
	require.Regexp(t, `(?s)^before\n<!-- sim:begin -->\n\nSimulated on .*10 processes, seed 1.*`+
		`\n\| half used \| 1 × 100 \| inflight \|.*\| the engine is down for 45 s \|.*\n<!-- sim:end -->\nafter\n$`, string(page))
	require.NotContains(t, string(page), "of yesterday")
	require.NotContains(t, string(page), "NaN")
	require.FileExists(t, to.chart)

	require.ErrorContains(t, run(*p, output{chart: "chart.gif"}, nil, virtual), "must end in")
	require.ErrorContains(t, run(*p, output{}, []string{"x"}, virtual), "unexpected argument")
	for _, wrong := range []func(*plan){
		func(p *plan) { p.processes = 9 },
		func(p *plan) { p.net.trip = 0 },
		func(p *plan) { p.net.loss = 2 },
		func(p *plan) { p.span = 0 },
	} {
		q := *p
		wrong(&q)
		require.Error(t, run(q, output{}, nil, virtual))
	}
}

// The requests are the same for the same seed, and others for another.
func TestSeed(t *testing.T) {
	admitted := func(seed uint64) (each []int64) {
		synctest.Test(t, func(*testing.T) {
			l := loads()[0]
			l.scale(10)
			c := newCrowd(newSplit(10, &l), l, seed)
			pause(5 * time.Second)
			c.end()
			for _, p := range c.processes {
				each = append(each, p.admitted.Load()+p.refused.Load())
			}
		})
		return each
	}
	require.Equal(t, admitted(1), admitted(1))
	require.NotEqual(t, admitted(1), admitted(2))
}
