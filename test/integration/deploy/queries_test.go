package deploy

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// query is a PromQL expression of an alert or of a panel.
type query struct {
	from, expr string
}

// alerts reads the rule file.
func alerts(t *testing.T) (rules []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	must(t, sigsyaml.UnmarshalStrict(read(t, deployDir, "prometheus", "alerts.yaml"), &file))
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

func panels(t *testing.T) []panel {
	t.Helper()
	var board struct {
		Panels []panel `json:"panels"`
	}
	must(t, json.Unmarshal(read(t, deployDir, "grafana", "controller-manager.json"), &board))
	return board.Panels
}

func queries(t *testing.T) (list []query) {
	t.Helper()
	for _, a := range alerts(t) {
		list = append(list, query{"alert " + a.Alert, a.Expr})
	}
	grafana := strings.NewReplacer("$job", "controller-manager", "$__rate_interval", "30s")
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			list = append(list, query{"panel " + p.Title, grafana.Replace(target.Expr)})
		}
	}
	return list
}

var selector = regexp.MustCompile(`([a-z_]+)\{[^}]*\}`)

// TestQueriesAskForMetricsThatExist: a query for a missing metric is silent for ever.
func TestQueriesAskForMetricsThatExist(t *testing.T) {
	known := documented(t)
	all := queries(t)
	if len(all) < 50 {
		t.Errorf("%d queries found", len(all))
	}
	for _, q := range all {
		names := selector.FindAllStringSubmatch(q.expr, -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing: %s", q.from, q.expr)
		}
		for _, m := range names {
			name := m[1]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if of, ok := strings.CutSuffix(m[1], suffix); ok && known[of].kind == "histogram" {
					name = of
				}
			}
			if _, ok := known[name]; !ok && m[1] != "up" && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				t.Errorf("%s asks for %s, which docs/metrics.md does not have", q.from, m[1])
			}
			if f := known[name]; f.kind == "histogram" && name == m[1] {
				t.Errorf("%s asks for the histogram %s as if it were a number", q.from, name)
			}
		}
	}
}

func TestAlertsAreComplete(t *testing.T) {
	operations := string(read(t, docsDir, "operations.md"))
	tests := string(read(t, deployDir, "prometheus", "alerts_test.yaml"))
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description", a.Alert)
		}
		if !strings.Contains(operations, "`"+a.Alert+"`") {
			t.Errorf("docs/operations.md does not tell what to do about %s", a.Alert)
		}
		for _, name := range []string{a.Alert + ": ", a.Alert + " is silent: "} {
			if !strings.Contains(tests, "'"+name) {
				t.Errorf("alerts_test.yaml has no test %q", name)
			}
		}
	}
}
