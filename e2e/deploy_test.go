package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet"
	"github.com/inflight-go/inflight/fleet/fleetmetrics"
	"github.com/inflight-go/inflight/metrics"
)

// deployed returns what is in a file of ../deploy.
func deployed(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "deploy", name))
	require.NoError(t, err)
	return content
}

func rulesFile(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "deploy", "rules.yml"))
	require.NoError(t, err)
	return path
}

func TestRulesByPromtool(t *testing.T) {
	promtool := installed(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Join("..", "deploy")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "SUCCESS")
	}
}

// A rule is one of deploy/rules.yml.
type rule struct {
	Record, Alert, Expr string
	Annotations         map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(deployed(t, "rules.yml"), &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Each alert has unit tests, and a section of the runbook to which it points.
func TestAlertsAreExplainedAndTested(t *testing.T) {
	runbook, tests := string(deployed(t, "runbook.md")), string(deployed(t, "rules_test.yml"))
	alerts := 0
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		require.Equal(t, "https://github.com/inflight-go/inflight/blob/main/deploy/runbook.md#"+strings.ToLower(r.Alert),
			r.Annotations["runbook_url"])
		require.Contains(t, runbook, "\n## "+r.Alert+"\n")
		require.Contains(t, tests, "alertname: "+r.Alert+"\n", "a test that it fires")
		require.Contains(t, tests, "alertname: "+r.Alert+",", "a test that it does not")
	}
	require.Equal(t, alerts, strings.Count(runbook, "\n## Inflight"))
}

// A panel is one of deploy/dashboard.json.
type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ UID string }
	Description string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct {
		UID, Title string
		Panels     []panel
		Templating struct{ List []struct{ Name string } }
	}
	require.NoError(t, json.Unmarshal(deployed(t, "dashboard.json"), &dashboard))
	require.NotEmpty(t, dashboard.Title)
	var variables []string
	for _, v := range dashboard.Templating.List {
		variables = append(variables, v.Name)
	}
	require.Equal(t, []string{"datasource", "job", "instance", "registry"}, variables)
	return dashboard.Panels
}

func TestDashboardLayout(t *testing.T) {
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range panels(t) {
		require.False(t, ids[p.ID], "id of %s", p.Title)
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Less(t, at[0], 24)
				require.Empty(t, taken[at], "%s lies over it", p.Title)
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, "${datasource}", target.Datasource.UID)
			require.Contains(t, target.Expr, `{job=~"$job", instance=~"$instance", registry=~"$registry"`)
		}
	}
}

// named are the metrics that an expression names: words that begin with inflight_ and are no part of a record's name.
var named = regexp.MustCompile(`[\w:]*\binflight[\w:]*`)

// Rules and dashboard name only what the collector exports, or what is recorded.
func TestExpressionsNameWhatIsExported(t *testing.T) {
	known := exported(t)
	var expressions []string
	for _, r := range rules(t) {
		expressions = append(expressions, r.Expr)
		if r.Record != "" {
			known = append(known, r.Record)
		}
	}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	require.Greater(t, len(expressions), 40)
	for _, expr := range expressions {
		names := named.FindAllString(expr, -1)
		require.NotEmpty(t, names, expr)
		require.Subset(t, known, names)
	}
}

// Every expression of the dashboard gives something in a real Prometheus, and so does every rule that is no alert, with
// classic histograms and with native ones; and nothing is alarming.
func TestDashboardOnPrometheus(t *testing.T) {
	for name, flags := range map[string][]string{"classic": nil, "native": {"--enable-feature=native-histograms"}} {
		t.Run(name, func(t *testing.T) {
			p := startPrometheus(t, serve(t, plain, busy(t)).URL, flags...)
			p.shows(t, "1", `up`)
			variables := strings.NewReplacer(
				"$job", ".*", "$instance", ".*", "$registry", ".*", "$__rate_interval", "1m",
			)
			something := func(got []sample) bool { return len(got) > 0 }
			for _, panel := range panels(t) {
				for _, target := range panel.Targets {
					p.until(t, variables.Replace(target.Expr), something)
				}
			}
			for _, r := range rules(t) {
				if r.Record != "" {
					p.until(t, r.Record, something)
				}
			}
			require.Empty(t, p.ask(t, `ALERTS{alertstate="firing"}`))
		})
	}
}

// collected is a fleet with a live slot, and the metrics of it and of its registry with its key listed.
func collected(t *testing.T) (*fleet.Fleet, *promclient.Registry) {
	t.Helper()
	reg := newRegistry(t, inflight.Limits{Key: 2})
	f := newFleet(t, reg, startRedis(t), fleet.Config{})
	held, err := f.Acquire(t.Context(), acme)
	require.NoError(t, err)
	t.Cleanup(held.Release)
	all := promclient.NewRegistry()
	all.MustRegister(metrics.NewCollector(reg, metrics.WithKeys(acme)), fleetmetrics.NewCollector(f))
	return f, all
}

// busy serves what is collected of a fleet. Between two scrapes one more slot was held, and one acquire refused.
func busy(t *testing.T) http.Handler {
	t.Helper()
	f, all := collected(t)
	exposition := promhttp.HandlerFor(all, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slot, err := f.Acquire(r.Context(), acme, inflight.MaxWait(0)); err == nil {
			_, _ = f.Acquire(r.Context(), acme, inflight.MaxWait(0)) //slotvet:ignore it is refused
			slot.Release()
		}
		exposition.ServeHTTP(w, r)
	})
}

// exported are the names of what is collected.
func exported(t *testing.T) (names []string) {
	t.Helper()
	_, all := collected(t)
	families, err := all.Gather()
	require.NoError(t, err)
	for _, f := range families {
		names = append(names, f.GetName())
		if f.GetMetric()[0].GetHistogram() != nil {
			names = append(names, f.GetName()+"_bucket", f.GetName()+"_sum", f.GetName()+"_count")
		}
	}
	return names
}
