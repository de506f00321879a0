package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// run simulates all there is, and says in markdown what came of it. It must run in virtual time.
func (p *plan) run() (string, []course) {
	var courses []course
	steady := p.steadyTable()
	for _, f := range faults() {
		progress(f.name)
		courses = append(courses, p.suffer(f))
	}
	return steady + "\n" + faultTable(courses), courses
}

func (p *plan) steadyTable() string {
	var b strings.Builder
	b.WriteString("Requests last 1 s on average. *In use* is of the limits, over time. *Refused with room* is when a tenth of the limit " +
		"or\nmore was free, of all requests. *Fairness* is Jain's index over the processes, 1 if all get the same. *Peak* is the " +
		"most that\nwas in flight at once at any limit. The sorted set is asked about each request and told of its end; nobody " +
		"waits there.\n")
	fmt.Fprintf(&b, "About %s of the calls a second of inflight are renewals, whatever the load.\n\n",
		whole(float64(p.processes*fleetShards)/(0.9*ttl.Seconds()/3)))
	b.WriteString("| load | keys × limit | design | admitted a second | calls a second | calls per admission | in use | refused " +
		"| refused with room | fairness | peak |\n| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, l := range loads() {
		l.scale(p.processes)
		progress(l.size() + ", " + l.name)
		title, size := l.name, l.size()
		for _, r := range p.compare(l) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.2f | %s | %s | %s | %s | %s |\n",
				title, size, r.design, whole(r.admissions), whole(r.calls), r.calls/max(r.admissions, 1),
				percent(r.utilisation), percent(r.refused), percent(r.early), fairness(r.jain, l.skewed), percent(r.peak))
			title, size = "", ""
		}
	}
	return b.String()
}

func faultTable(courses []course) string {
	var b strings.Builder
	l := faulted()
	fmt.Fprintf(&b, "What faults do to a limit of which half more is asked than there is, by requests of %v on average that do not wait.\n"+
		"Each process is busy for %v on average, then has a fifth of that to do for as long. Leases hold for %v. Times are from\n"+
		"the fault. Who is cut off for longer than that goes on with its part of the limit, while others are granted the whole.\n\n",
		l.hold, phase, ttl)
	b.WriteString("| fault | calls a second afterwards | in use before | least in use | back to 95 % of before | peak " +
		"| above the limit until |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for i := range courses {
		c := &courses[i]
		peak, above := c.peak()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.fault.name, whole(c.calls), percent(c.before),
			percent(c.worst()), after(c.recovered(), "never less"), percent(peak), after(above, "never"))
	}
	return b.String()
}

// compare returns what each design makes of a load.
func (p *plan) compare(l load) []steady {
	rows := []steady{p.measure(&newLeased(p.processes, &l, p.net, p.seed).design, l)}
	if l.wait == 0 {
		rows = append(rows, p.measure(newCentral(p.processes, &l, p.net, p.seed), l))
	}
	return append(rows, p.measure(newSplit(p.processes, &l), l))
}

func progress(name string) { fmt.Fprintln(os.Stderr, name) }

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

// whole has a comma at each thousand.
func whole(n float64) string {
	digits := strconv.Itoa(int(math.Round(n)))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func fairness(jain float64, skewed bool) string {
	if skewed {
		return ""
	}
	return fmt.Sprintf("%.2f", jain)
}

func after(d time.Duration, never string) string {
	if d == 0 {
		return never
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// environment says where the numbers are from.
func (p *plan) environment(took time.Duration) string {
	return fmt.Sprintf("Simulated on %s: %d processes, seed %d, a round trip of %v on average, %s of all calls lost; on %d CPUs of "+
		"an %s, %s/%s, %s, in %s:\n\n```sh\ngo run ./fleet/sim -o docs/fleet.md -chart docs/fleet.png\n```",
		time.Now().Format(time.DateOnly), p.processes, p.seed, p.net.trip, percent(p.net.loss),
		runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version(), took.Round(time.Second))
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
