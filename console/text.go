package console

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/inflight-go/inflight"
)

// text writes what the page shows for a terminal. All that clients chose stands last in its line, and is quoted if it
// holds anything that a terminal could take for more than text.
func (h *handler) text(w http.ResponseWriter, q query) {
	s := look(h.registry, q.limit)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	h.textOverview(w, s)
	textKeys(w, s.listKeys(q))
	textWaiters(w, s.listWaiters(q), s.at)
	textSlots(w, s.slots(q))
}

func (h *handler) textOverview(w io.Writer, s *snapshot) {
	st := &s.stats
	name := ""
	if h.registry.Name() != "" {
		name = " " + plain(h.registry.Name())
	}
	swept := "never"
	if !st.LastSweep.IsZero() {
		swept = age(s.at.Sub(st.LastSweep)) + " ago"
	}
	line(w, "inflight%s at %s", name, s.at.UTC().Format(time.RFC3339))
	line(w, "in use    %d, recent peak %d; %s of %s, the oldest %s", st.InUse, st.RecentPeakInUse,
		count(st.Holders, "holder"), count(st.Keys, "key"), age(st.OldestHeld))
	line(w, "waiting   %d", st.Waiters)
	line(w, "trouble   %d long-held, %d lost", st.LongHeld, st.LostHeld)
	line(w, "so far    %d admitted, %d refused%s", st.Admitted, st.RejectedTotal(), byScope(st))
	line(w, "swept     %s", swept)
	line(w, "instance  %s", h.instance)
}

// byScope says which limits refused.
func byScope(st *inflight.Stats) string {
	var scopes []string
	for scope, n := range st.Rejected {
		if n.Total() > 0 {
			scopes = append(scopes, fmt.Sprintf("%s %d", inflight.Scope(scope), n.Total()))
		}
	}
	if scopes == nil {
		return ""
	}
	return " (by limit: " + strings.Join(scopes, ", ") + ")"
}

func textKeys(w io.Writer, l list[inflight.KeyInfo]) {
	heading(w, "KEYS, those nearest to their limit first", l.Matched, l.Total, l.More)
	leased, lease := slices.ContainsFunc(l.Items, isLeased), ""
	if leased {
		lease = "GRANTED\tELSEWHERE\t"
	}
	columns(w, "USE\tIN USE\tLIMIT\t"+lease+"HOLDERS\tWAITERS\t  KEY", l.Items, func(k inflight.KeyInfo) string {
		use := "-"
		if viewUsage(k).Utilisation != nil {
			use = fmt.Sprintf("%.0f%%", math.Floor(100*float64(k.InUse)/float64(k.Limit))) // 100 % is full, no less
		}
		switch {
		case isLeased(k):
			lease = fmt.Sprintf("%d\t%d\t", k.Granted, k.Elsewhere)
		case leased:
			lease = "-\t-\t"
		}
		return fmt.Sprintf("%s\t%d\t%s\t%s%d\t%d\t  %s",
			use, k.InUse, limitView(k.Limit), lease, k.Holders, k.Waiters, cut(k.Key.String()))
	})
}

func textWaiters(w io.Writer, l list[inflight.WaiterInfo], now time.Time) {
	heading(w, "WAITERS, in order", l.Matched, l.Total, l.More)
	columns(w, "WAITS\tWEIGHT\tAT LIMIT OF\t  "+whoColumn, l.Items, func(v inflight.WaiterInfo) string {
		return fmt.Sprintf("%s\t%d\t%s\t  %s", age(now.Sub(v.Since)), v.Weight, v.Blocked, who(v.Label, v.Key))
	})
}

func textSlots(w io.Writer, l list[inflight.SlotInfo]) {
	heading(w, "HOLDERS, the oldest first", l.Matched, l.Total, l.More)
	columns(w, "AGE\tSLOT\tWEIGHT\tSTATE\t  "+whoColumn, l.Items, func(s inflight.SlotInfo) string {
		return fmt.Sprintf("%s\t%d\t%d\t%s\t  %s",
			age(s.Held), s.ID, s.Weight, stateOf(s), who(s.Label, s.Key, s.Also...))
	})
}

// keyWidth is that of most keys. Longer ones push their labels to the right.
const keyWidth = 28

const whoColumn = "KEY                           LABEL"

// who writes a key, those it also counts against, and a label.
func who(label string, key inflight.Key, also ...inflight.Key) string {
	keys := []string{cut(key.String())}
	for _, k := range also {
		keys = append(keys, "+"+cut(k.String()))
	}
	return strings.TrimRight(fmt.Sprintf("%-*s  %s", keyWidth, strings.Join(keys, " "), plain(label)), " ")
}

func stateOf(s inflight.SlotInfo) string {
	switch {
	case s.Lost:
		return "lost"
	case s.LongHeld:
		return "long-held"
	}
	return "-"
}

// heading begins a section. It says how many there are and how many of them are not shown.
func heading(w io.Writer, title string, matched, total, more int) {
	what := strconv.Itoa(total)
	if matched != total {
		what = fmt.Sprintf("%d of %d match", matched, total)
	}
	if more > 0 {
		what += fmt.Sprintf(", %d more are not shown", more)
	}
	line(w, "\n%s: %s", title, what)
}

// columns writes a table whose columns are set right, but for the last.
func columns[T any](w io.Writer, header string, items []T, row func(T) string) {
	if len(items) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line(table, "%s", header)
	for _, item := range items {
		line(table, "%s", row(item))
	}
	_ = table.Flush() // an error means that the client is gone
}

func line(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// age writes a duration as people say it, to the second once it is some.
func age(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", max(d, 0).Seconds())
	}
	return d.Round(time.Second).String()
}

// plain quotes a text unless it is free of control characters, of what else does not print, and of quotes.
func plain(s string) string {
	s = cut(s)
	if strings.ContainsFunc(s, func(c rune) bool { return c == '"' || c == '\\' || c == '\uFFFD' || !strconv.IsPrint(c) }) {
		return strconv.Quote(s)
	}
	return s
}
