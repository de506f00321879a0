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
	var b strings.Builder
	b.WriteString("| load | design | admitted a second | calls a second | calls per admission | limit used | refused " +
		"| refused with room | fairness | peak |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, l := range loads() {
		progress(l.name)
		l.scale(p.processes)
		title := l.name
		for _, r := range p.compare(l) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f | %s | %s | %s | %s | %s |\n", title, r.design, whole(r.admissions), whole(r.calls),
				r.calls/r.admissions, percent(r.utilisation), percent(r.refused), percent(r.early), fairness(r.jain, l.skewed), percent(r.peak))
			title = ""
		}
	}
	b.WriteString("\n| fault | calls a second | limit used before | least used | back to 95 % of before | peak | above the limit until |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	var courses []course
	for _, f := range faults() {
		progress(f.name)
		c := p.suffer(f)
		courses = append(courses, c)
		peak, above := c.peak()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", f.name, whole(c.calls), percent(c.before), percent(c.worst()),
			after(c.recovered(), "never less"), percent(peak), after(above, "never"))
	}
	return b.String(), courses
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
	return fmt.Sprintf("Simulated on %s: %d processes, seed %d, a round trip of %v on average, %s of all calls lost; on %d CPUs of an %s, "+
		"%s/%s, %s, in %s.", time.Now().Format(time.DateOnly), p.processes, p.seed, p.net.trip, percent(p.net.loss),
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
