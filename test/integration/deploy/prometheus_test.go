package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

func TestPromtool(t *testing.T) {
	promtool := built(t, "promtool")
	dir := filepath.Join(deployDir, "prometheus")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	config := prometheusConfig(t)
	if out, err := exec.Command(promtool, "check", "config", config).CombinedOutput(); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
}

// prometheusConfig writes the configuration of deploy/ for a Prometheus outside of the cluster, with a pace that a test can wait for. It
// returns the file.
func prometheusConfig(t *testing.T) string {
	t.Helper()
	var config map[string]any
	must(t, sigsyaml.Unmarshal(read(t, deployDir, "prometheus", "prometheus.yml"), &config))
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token(t, "monitoring", "prometheus")), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), read(t, deployDir, "prometheus", "alerts.yaml"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), cluster.Config().CAData, 0o600))
	scrape := config["scrape_configs"].([]any)[0].(map[string]any)
	scrape["authorization"].(map[string]any)["credentials_file"] = filepath.Join(dir, "token")
	discovery := scrape["kubernetes_sd_configs"].([]any)[0].(map[string]any)
	discovery["api_server"] = cluster.Config().Host
	discovery["authorization"] = scrape["authorization"]
	discovery["tls_config"] = map[string]any{"ca_file": filepath.Join(dir, "ca.crt")}
	scrape["scrape_interval"], scrape["scrape_timeout"] = "1s", "1s"
	text, err := sigsyaml.Marshal(config)
	must(t, err)
	path := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// discoverable makes a pod of the labels, the port and the name that deploy/deployment gives to a replica, for one that listens at
// address.
func discoverable(t *testing.T, name, address string, edits ...func(*corev1.Pod)) {
	t.Helper()
	var deployment *appsv1.Deployment
	for _, o := range render(t, "deployment") {
		if o.GetKind() == "Deployment" {
			deployment = convert[appsv1.Deployment](t, o)
		}
	}
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	pod := controlplane.Pod("kube-system", name, deployment.Spec.Template.Labels)
	pod.Spec.Containers[0].Ports = deployment.Spec.Template.Spec.Containers[0].Ports
	pod.Spec.Containers[0].Ports[0].ContainerPort = int32(number)
	for _, edit := range edits {
		edit(pod)
	}
	pods := cluster.Client(t).CoreV1().Pods("kube-system")
	_, err = pods.Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = pods.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	status := fmt.Sprintf(`{"status":{"phase":%q,"podIP":%q,"podIPs":[{"ip":%q}]}}`, cmp.Or(pod.Status.Phase, corev1.PodRunning), host, host)
	_, err = pods.Patch(t.Context(), name, "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status")
	must(t, err)
}

// decoys are pods that must not be scraped.
func decoys(t *testing.T) {
	t.Helper()
	nobody := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	discoverable(t, "another-program", nobody, func(p *corev1.Pod) { p.Labels = map[string]string{"app.kubernetes.io/name": "another-program"} })
	discoverable(t, "another-port", nobody, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Name = "debug" })
	discoverable(t, "finished", nobody, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
}

// quiet are the panels without a line as long as all is well, and the alerts are all of that kind.
var quiet = []string{"panel Refused and failed requests"}

// TestPrometheusScrapesTwoReplicas lets a real Prometheus ask everything that alerts and dashboard ask.
func TestPrometheusScrapesTwoReplicas(t *testing.T) {
	prometheus := built(t, "prometheus")
	newApplier(t).keep(t, render(t, "rbac")...)
	newApplier(t).keep(t, render(t, "prometheus")...)
	_ = cluster.Client(t).CoordinationV1().Leases("kube-system").Delete(t.Context(), "controller-manager", metav1.DeleteOptions{}) // of an earlier test
	config := prometheusConfig(t)
	for _, name := range []string{"a", "b"} {
		discoverable(t, "controller-manager-"+name, start(t))
	}
	decoys(t)
	w := startWorkload(t, "scraped")
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	controlplane.StartProgram(t, prometheus, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address, "--log.level=warn")
	ask := func(expr string) ([]string, error) { return instant(address, expr) }

	controlplane.Eventually(t, patience, func(context.Context) error {
		return want(ask, `count(up{job="controller-manager",pod=~"controller-manager-[ab]"} == 1) == 2 and sum(leader_election_master_status) == 1`)
	})
	if answer, err := ask(`up{pod!~"controller-manager-[ab]"}`); err != nil || len(answer) > 0 {
		t.Errorf("scraped as well: %v, %v", answer, err)
	}
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
