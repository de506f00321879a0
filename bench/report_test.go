package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTable(t *testing.T) {
	base, other := row{name: "bare"}, row{name: "inflight", buys: buys{holder: yes, double: yes, body: no}}
	fast := timing{nanos: 50, bytes: 0}
	slow := timing{nanos: 1234.5, bytes: 128, allocs: 1}
	require.Equal(t, strings.TrimLeft(`
|  | time | B | allocations | compared | knows the holder | survives a double release | holds to the body's end |
| --- | ---: | ---: | ---: | --- | --- | --- | --- |
| **A group** |  |  |  |  |  |  |  |
| bare | 50 ns | 0 | 0 | 1 |  |  |  |
| inflight | 1.23 µs | 128 | 1 | 24.69 × bare | yes | yes | no |
| Stats | 210 µs |  |  | at worst 1.50 ms; the read took 3 ms |  |  |  |
`, "\n"), table([]line{
		title("A group"),
		base.line(fast, "bare", fast),
		other.line(slow, "bare", fast),
		holdUp{read: "Stats", longest: 210 * time.Microsecond, worst: 1500 * time.Microsecond, took: 3 * time.Millisecond}.line(),
	}))
	require.Equal(t, strings.TrimLeft(`
| goal | at most | measured | |
| --- | ---: | ---: | --- |
| a | 1.25 | 1.25 | reached |
| b | 50 µs | 50.1 µs | **missed** |
`, "\n"), goalTable([]goal{
		{name: "a", got: 1.25, max: 1.25, show: factor},
		{name: "b", got: 50_100, max: 50_000, show: duration},
	}))
}

func TestNumbers(t *testing.T) {
	for nanos, want := range map[float64]string{
		0: "0 ns", 4.567: "4.57 ns", 45.67: "45.7 ns", 456.7: "457 ns", 999.6: "1.00 µs", 45_670: "45.7 µs", 9.99e8: "999 ms", 1.5e10: "15 s",
	} {
		require.Equal(t, want, duration(nanos))
	}
	require.Equal(t, "1,343,792", number(1_343_792))
	for n, want := range map[int]string{7: "7", 1000: "1,000", 1_020_003: "1,020,003"} {
		require.Equal(t, want, grouped(n))
	}
}

func TestMeasure(t *testing.T) {
	cleaned := 0
	works := func(size int) func() (func(n int), func()) {
		return func() (func(n int), func()) {
			return func(n int) {
				for range n {
					kept = make([]byte, size)
				}
			}, func() { cleaned++ }
		}
	}
	got := plan{rounds: 5, sample: time.Millisecond}.measure(group{rows: []row{
		{name: "small", setup: works(64)}, {name: "large", setup: works(4096)},
	}})
	require.InDelta(t, 64, got["small"].bytes, 30) // the runtime allocates too
	require.InDelta(t, 4096, got["large"].bytes, 30)
	require.Equal(t, 1.0, got["large"].allocs)
	require.Positive(t, got["small"].nanos)
	require.Equal(t, 2, cleaned)
}

var kept []byte

// Work is repeated until it fills a sample.
func TestCalibrate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plan{sample: time.Second}
		require.Equal(t, 100, p.calibrate(func(n int) { time.Sleep(time.Duration(n) * 10 * time.Millisecond) }))
		require.Equal(t, 1, p.calibrate(func(n int) { time.Sleep(time.Duration(n) * 3 * time.Second) }))
		calls := 0
		require.Equal(t, 100, p.calibrate(func(n int) {
			time.Sleep(time.Duration(n) * 10 * time.Millisecond)
			if calls++; calls == 1 {
				time.Sleep(time.Hour) // somebody else's work
			}
		}))
	})
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 4, 3, 2, 1}
	require.Equal(t, 3.0, quantile(values, 0.5))
	require.Equal(t, 2.0, quantile(values, 0.25))
	require.Equal(t, 1.0, quantile(values[4:], 0.25))
}

func TestOnCPUs(t *testing.T) {
	plain := group{name: "plain"}
	require.Equal(t, []group{plain}, plain.onCPUs())
	require.Equal(t, []group{{name: "g: 1", cpus: []int{1}}, {name: "g: 8", cpus: []int{8}}}, group{name: "g", cpus: []int{1, 8}}.onCPUs())
}

// All goroutines together do the work, no more and no less.
func TestSpread(t *testing.T) {
	for goroutines := range 9 {
		for n := range 20 {
			parts := make(chan int, 9)
			spread(func(n int) { parts <- n }, goroutines)(n)
			close(parts)
			sum := 0
			for part := range parts {
				sum += part
			}
			require.Equal(t, n, sum)
		}
	}
}

// Each row works, and each group has the row that the others are compared with.
func TestRows(t *testing.T) {
	for _, g := range append(acquireGroups(), httpGroups()...) {
		if g.name == sizeGroup {
			g.rows = sizeRows(100)
		}
		names := map[string]bool{}
		for _, r := range g.rows {
			require.False(t, names[r.name], r.name)
			names[r.name] = true
			work, cleanup := r.setup()
			work(10)
			cleanup()
		}
		require.True(t, names[g.base], g.name)
		if g.name == acquireGroup {
			require.Subset(t, names, map[string]bool{floor: true, liveKey: true, idleKey: true, livePort: true, idlePort: true})
		}
	}
}

func TestHoldUps(t *testing.T) {
	for _, h := range holdUps(1000, 10, 3) {
		require.Positive(t, h.longest)
		require.Positive(t, h.took)
		require.GreaterOrEqual(t, h.worst, h.longest)
	}
}

func TestSecondSweep(t *testing.T) {
	require.Positive(t, secondSweep(100, 3))
}

func TestHeapOf(t *testing.T) {
	const slots = 100_000
	live, swept, released := heapOf(slots, inTurn(1))
	require.InDelta(t, 256, live/slots, 128)
	require.Greater(t, swept, live)
	require.Less(t, released, live/4)
}

func TestBetween(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	require.ErrorIs(t, run(plan{rounds: 1, sample: time.Second}, output{page: file}, nil), os.ErrNotExist)
	for _, page := range []string{"# Page\n", begin, end} {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		require.ErrorContains(t, run(plan{rounds: 1, sample: time.Second}, output{page: file}, nil), "page.md has no lines")
	}
	require.EqualError(t, run(plan{rounds: 1, sample: time.Second}, output{chart: "x.gif"}, nil), `-chart is "x.gif", must end in .png or .svg`)
	require.Error(t, run(plan{rounds: 0, sample: time.Second}, output{}, nil))
	require.Error(t, run(plan{rounds: 1, sample: time.Second}, output{}, []string{"x"}))

	page := "# Page\n" + begin + "old\n" + end + "rest\n"
	page = between(page, "new\n")
	require.Equal(t, "# Page\n"+begin+"\nnew\n\n"+end+"rest\n", page)
	require.Equal(t, page, between(page, "new\n"))
}

func TestDrawChart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.svg")
	g := group{rows: []row{{name: "floor"}, {name: "inflight", buys: buys{holder: yes, double: yes}}}}
	require.NoError(t, drawChart(g, map[string]timing{"floor": {nanos: 120}, "inflight": {nanos: 150}}, file))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{">floor<", ">inflight<", ">120<", ">150<", "#0072B2"} {
		require.Contains(t, strings.ReplaceAll(string(svg), "> ", ">"), text)
	}
	require.ErrorIs(t, drawChart(g, nil, filepath.Join(file+"s", "x.svg")), os.ErrNotExist)
}

func TestEnvironment(t *testing.T) {
	require.Regexp(t, `^Measured on \d{4}-\d\d-\d\d on \d+ CPUs of an .+, \w+/\w+, go1\.`, environment())
}
