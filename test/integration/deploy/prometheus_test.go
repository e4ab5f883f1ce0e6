package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"minikcm/test/controlplane"
)

func TestPromtool(t *testing.T) {
	controlplane.SkipUnlessLong(t)
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

// prometheusConfig returns a copy of deploy/prometheus/prometheus.yml that names existing files and the test's API
// server.
func prometheusConfig(t *testing.T) string {
	t.Helper()
	var config map[string]any
	must(t, sigsyaml.Unmarshal(read(t, deployDir, "prometheus", "prometheus.yml"), &config))
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte("token"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), read(t, deployDir, "prometheus", "alerts.yaml"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), cluster.Config().CAData, 0o600))
	scrape := config["scrape_configs"].([]any)[0].(map[string]any)
	scrape["authorization"].(map[string]any)["credentials_file"] = filepath.Join(dir, "token")
	discovery := scrape["kubernetes_sd_configs"].([]any)[0].(map[string]any)
	discovery["api_server"] = cluster.Config().Host
	discovery["authorization"] = scrape["authorization"]
	discovery["tls_config"] = map[string]any{"ca_file": filepath.Join(dir, "ca.crt")}
	text, err := sigsyaml.Marshal(config)
	must(t, err)
	path := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}
