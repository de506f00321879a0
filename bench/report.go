package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// results are timings by the names of the group and of the row.
type results map[string]map[string]timing

// report measures everything, and says it in markdown.
func (p plan) report() (string, results) {
	start := time.Now()
	timings := results{}
	var lines []line
	groups := append(acquireGroups(), httpGroups()...)
	client, stop, noRedis := startRedis()
	if noRedis == nil {
		defer stop()
		groups = append(groups, fleetGroups(client)...)
	}
	for _, g := range groups {
		for _, one := range g.onCPUs() {
			progress(one.name)
			measured := p.measure(one)
			timings[one.name] = measured
			lines = append(lines, title(one.name))
			for _, r := range one.rows {
				lines = append(lines, r.line(measured[r.name], one.base, measured[one.base]))
			}
		}
	}
	crowds := map[int][]holdUp{}
	for _, slots := range []int{100_000, 1_000_000} {
		name := fmt.Sprintf("The longest that a read held up an acquire, with %s live slots over 10,000 keys", grouped(slots))
		progress(name)
		crowds[slots] = holdUps(slots, 10_000, min(50, p.rounds))
		lines = append(lines, title(name))
		for _, h := range crowds[slots] {
			lines = append(lines, h.line())
		}
	}
	const again = "A sweep of 1,000,000 live slots of one key, all seen before"
	progress(again)
	sweep := secondSweep(1_000_000, p.rounds)
	lines = append(lines, title(again), line{name: "the whole Sweep", time: duration(float64(sweep))})
	progress("Memory")
	m := measureMemory()
	lines = append(lines, m.lines()...)
	reached := goals(timings, crowds[100_000], sweep, m)
	facts := environment()
	if noRedis == nil {
		const name = "Calls to Redis of a fleet of six processes"
		progress(name)
		ratios := callsPerAdmission(client)
		lines = append(lines, title(name))
		for _, r := range ratios {
			lines = append(lines, r.line())
		}
		reached = append(reached, fleetGoals(timings[fleetGroup], ratios)...)
		facts += ", " + redisVersion(client)
	} else {
		facts += "; " + noRedis.Error()
	}
	return fmt.Sprintf("%s, in %s.\n\n%s\n%s", facts, time.Since(start).Round(time.Second), table(lines), goalTable(reached)), timings
}

func progress(name string) { fmt.Fprintln(os.Stderr, name) }

// goals are what was set out to be reached.
func goals(timings results, crowd []holdUp, sweep time.Duration, m memory) []goal {
	acquire, sizes := timings[acquireGroup], timings[sizeGroup]
	live, idle := acquire[liveKey], acquire[idleKey]
	var longest time.Duration
	for _, h := range crowd {
		if h.read != nothing {
			longest = max(longest, h.longest)
		}
	}
	return []goal{
		{name: "a live key: time of TryAcquire and Release, in floors", got: live.nanos / acquire[floor].nanos, max: 1.25, show: factor},
		{name: "the same: allocations", got: live.allocs, max: 1, show: number},
		{name: "the same: bytes", got: live.bytes, max: 128, show: number},
		{name: "an idle key: time, in floors", got: idle.nanos / acquire[floor].nanos, max: 1.8, show: factor},
		{name: "a live key: time, in those of a map of maps", got: live.nanos / acquire[livePort].nanos, max: 0.5, show: factor},
		{name: "an idle key: time, in those of a map of maps", got: idle.nanos / acquire[idlePort].nanos, max: 0.5, show: factor},
		{name: "1,000,000 live slots: time, in those of 1", got: sizes[million].nanos / sizes[oneSlot].nanos, max: 2, show: factor},
		{name: "a sweep of 1,000,000 live slots, all seen before, in all", got: float64(sweep), max: 50e3, show: duration},
		{name: "100,000 live slots over 10,000 keys: longest that any read held up an acquire", got: float64(longest), max: 1e6, show: duration},
		{name: "a live slot: bytes", got: m.slot, max: 256, show: number},
		{name: "an idle key: bytes", got: m.idleKey, max: 0, show: number},
	}
}

// environment says where the numbers are from.
func environment() string {
	gogc := os.Getenv("GOGC")
	if gogc == "" {
		gogc = "400"
	}
	facts := []string{
		fmt.Sprintf("Measured on %s on %d CPUs of an %s", time.Now().Format(time.DateOnly), runtime.NumCPU(), processor()),
		runtime.GOOS + "/" + runtime.GOARCH, runtime.Version(), "GOGC=" + gogc,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if slices.Contains(peers, m.Path) {
				facts = append(facts, m.Path+" "+m.Version)
			}
		}
	}
	return strings.Join(facts, ", ")
}

// peers are the modules whose versions matter.
var peers = []string{
	"golang.org/x/sync", "github.com/failsafe-go/failsafe-go", "github.com/go-chi/chi/v5", "github.com/jellydator/ttlcache/v3",
	"github.com/prometheus/client_golang", "github.com/redis/go-redis/v9",
}

// processor is the name of the CPU's model where that is easy to learn.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown model"
	}
	for lines := bufio.NewScanner(bytes.NewReader(info)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown model"
}
