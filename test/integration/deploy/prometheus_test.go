package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"minikcm/test/controlplane"
)

// query is a PromQL expression of an alert or of a panel.
type query struct{ from, expr string }

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

// panel is what matters here of a panel of the dashboard.
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

// queries are all that alerts and dashboard ask, with Grafana's variables filled in.
func queries(t *testing.T) (list []query) {
	t.Helper()
	for _, a := range alerts(t) {
		list = append(list, query{"alert " + a.Alert, a.Expr})
	}
	grafana := strings.NewReplacer("$job", "controller-manager", "$__rate_interval", "10s")
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			list = append(list, query{"panel " + p.Title, grafana.Replace(target.Expr)})
		}
	}
	return list
}

// selector finds the metrics of an expression; ours all have a matcher.
var selector = regexp.MustCompile(`([a-z_]+)\{`)

// What a query asks for must exist, or it is silent for ever and looks like good news.
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
			name := base(m[1], func(name string) bool { return known[name].kind == "histogram" })
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

const fromDebian = "Debian: apt-get install prometheus"

func TestPromtool(t *testing.T) {
	promtool := program(t, "promtool", fromDebian)
	dir := filepath.Join(deployDir, "prometheus")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	config := prometheusConfig(t, "127.0.0.1:1", "127.0.0.1:2")
	if out, err := exec.Command(promtool, "check", "config", config).CombinedOutput(); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
}

// prometheusConfig writes the configuration of deploy/ with targets that are named instead of found, a token from a file of the
// test's, and a pace that a test can wait for. It returns the file.
func prometheusConfig(t *testing.T, targets ...string) string {
	t.Helper()
	var config map[string]any
	must(t, sigsyaml.Unmarshal(read(t, deployDir, "prometheus", "prometheus.yml"), &config))
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token(t, "monitoring", "prometheus")), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), read(t, deployDir, "prometheus", "alerts.yaml"), 0o600))
	scrape := config["scrape_configs"].([]any)[0].(map[string]any)
	delete(scrape, "kubernetes_sd_configs") // Debian's build has no Kubernetes discovery
	delete(scrape, "relabel_configs")
	scrape["static_configs"] = []any{map[string]any{"targets": targets}}
	scrape["authorization"].(map[string]any)["credentials_file"] = filepath.Join(dir, "token")
	scrape["scrape_interval"], scrape["scrape_timeout"] = "1s", "1s"
	text, err := sigsyaml.Marshal(config)
	must(t, err)
	path := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// quiet are the panels without a line as long as all is well, and the alerts are all of that kind.
var quiet = []string{"panel Refused and failed requests"}

// TestPrometheusScrapesTwoReplicas lets a real Prometheus ask everything that alerts and dashboard ask.
func TestPrometheusScrapesTwoReplicas(t *testing.T) {
	prometheus := program(t, "prometheus", fromDebian)
	newApplier(t).keep(t, render(t, "rbac")...)
	newApplier(t).keep(t, render(t, "prometheus")...)
	_ = cluster.Client(t).CoordinationV1().Leases("kube-system").Delete(t.Context(), "controller-manager", metav1.DeleteOptions{}) // of an earlier test
	config := prometheusConfig(t, start(t), start(t))
	w := startWorkload(t, "scraped")
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	controlplane.StartProgram(t, prometheus, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address, "--log.level=warn")
	ask := func(expr string) ([]string, error) { return instant(address, expr) }

	controlplane.Eventually(t, patience, func(context.Context) error {
		return want(ask, `sum(up{job="controller-manager"}) == 2 and sum(leader_election_master_status) == 1`)
	})
	w.wait(t)
	for _, q := range queries(t) {
		controlplane.Eventually(t, patience, func(context.Context) error {
			answer, err := ask(q.expr)
			if err != nil {
				return fmt.Errorf("%s: %w", q.from, err)
			}
			if strings.HasPrefix(q.from, "alert ") || slices.Contains(quiet, q.from) {
				for _, m := range selector.FindAllStringSubmatch(q.expr, -1) { // silent now, but about something
					if err := want(ask, m[1]); err != nil {
						return fmt.Errorf("%s: %w", q.from, err)
					}
				}
			} else if len(answer) == 0 {
				return fmt.Errorf("%s: no data for %s", q.from, q.expr)
			}
			t.Logf("%s\n  %s\n  %s", q.from, q.expr, strings.Join(answer, "\n  "))
			return nil
		})
	}
	w.letGo(t)
}

func want(ask func(string) ([]string, error), expr string) error {
	answer, err := ask(expr)
	if err == nil && len(answer) == 0 {
		err = fmt.Errorf("no data for %s", expr)
	}
	return err
}

// instant asks Prometheus and returns one line for each series.
func instant(address, expr string) ([]string, error) {
	answer, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, body.Error)
	}
	var lines []string
	for _, r := range body.Data.Result {
		lines = append(lines, fmt.Sprintf("%v = %v", r.Metric, r.Value[1]))
	}
	return lines, nil
}
