package deploy

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"minikcm/test/controlplane"
)

// TestPromtool runs promtool on alerts.yaml, its tests, and the configuration of Prometheus, whose files exist in a pod
// only.
func TestPromtool(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	for _, args := range []string{"check rules alerts.yaml", "test rules alerts_test.yaml", "check config --syntax-only prometheus.yml"} {
		cmd := exec.Command(built(t, "promtool"), strings.Fields(args)...)
		cmd.Dir = deployDir + "/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// TestQueriesNameExistingMetrics: a query for a missing metric is silent for ever.
func TestQueriesNameExistingMetrics(t *testing.T) {
	kinds, count := map[string]string{}, 0
	for _, m := range regexp.MustCompile("(?m)^- `([a-z_]+)[^`]*`, ([a-z]+)").FindAllStringSubmatch(string(read(t, docsDir, "metrics.md")), -1) {
		kinds[m[1]] = m[2]
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range []string{"prometheus/alerts.yaml", "grafana/controller-manager.json"} {
		for _, m := range regexp.MustCompile(`([a-z_]+)\{`).FindAllStringSubmatch(string(read(t, deployDir, file)), -1) {
			count++
			name, ofHistogram := m[1], kinds[suffix.ReplaceAllString(m[1], "")] == "histogram"
			if ofHistogram {
				name = suffix.ReplaceAllString(name, "")
			}
			if kinds[name] == "" && name != "up" && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				t.Errorf("%s asks for %s, which docs/metrics.md does not have", file, m[1])
			}
			if ofHistogram && name == m[1] {
				t.Errorf("%s asks for the histogram %s as if it were a number", file, name)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ *"?expr"?: *(.*)`).FindAllStringSubmatch(string(read(t, deployDir, "prometheus/alerts.yaml")), -1) {
		if !strings.Contains(m[1], "{") && !strings.HasPrefix(m[1], "|") && !strings.HasPrefix(m[1], ">") {
			t.Errorf("no metric with braces in %s", m[1])
		}
	}
	if count < 50 {
		t.Errorf("%d metrics found", count)
	}
}

func TestAlertsAreComplete(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	controlplane.Must(t, sigsyaml.Unmarshal(read(t, deployDir, "prometheus", "alerts.yaml"), &file))
	operations, tests := string(read(t, docsDir, "operations.md")), string(read(t, deployDir, "prometheus", "alerts_test.yaml"))
	for _, group := range file.Groups {
		for _, a := range group.Rules {
			if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
				t.Errorf("%s lacks a severity, a summary or a description", a.Alert)
			}
			if !strings.Contains(operations, "\n### "+a.Alert+"\n") {
				t.Errorf("docs/operations.md has no heading %s", a.Alert)
			}
			for _, name := range []string{a.Alert + ": ", a.Alert + " is silent: "} {
				if !strings.Contains(tests, "'"+name) {
					t.Errorf("alerts_test.yaml has no test %q", name)
				}
			}
		}
	}
}
