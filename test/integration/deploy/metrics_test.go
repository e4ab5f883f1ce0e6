package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"minikcm/test/controlplane"
)

type family struct {
	kind   string // counter, gauge or histogram
	labels string // names, sorted, with commas, without le
	help   string
}

// scrape reads metrics, without the metrics that every Go process has.
func scrape(t *testing.T, port int, path string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(expect(t, port, cluster.Token(t, "monitoring", "prometheus"), path, 200)))
	controlplane.Must(t, err)
	maps.DeleteFunc(parsed, func(name string, _ *dto.MetricFamily) bool {
		return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
	})
	return parsed
}

func families(parsed map[string]*dto.MetricFamily) map[string]family {
	found := map[string]family{}
	for name, f := range parsed {
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, pair := range m.Label {
				labels[pair.GetName()] = true
			}
		}
		found[name] = family{strings.ToLower(f.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ","), f.GetHelp()}
	}
	return found
}

var onDemand = map[string]family{
	"endpoint_slice_controller_services_count_by_traffic_distribution": {"gauge", "traffic_distribution", "Services that prefer endpoints of their zone or node."},
	"garbagecollector_type_failing":                                    {"gauge", "group,resource", "1 for each type whose objects cannot be listed or watched."},
	"rest_client_exec_plugin_call_total":                               {"counter", "call_status,code", "Calls of a credential plugin that the kubeconfig names."},
	"rest_client_rate_limiter_duration_seconds":                        {"histogram", "host,verb", "Waits for --kube-api-qps, if it is positive."},
	"rest_client_request_retries_total":                                {"counter", "code,host,verb", "Requests that were sent again because the response demanded a retry."},
	"rest_client_transport_ca_reload_total":                            {"counter", "reason,result", "Checks of the CA file of the kubeconfig."},
	"rest_client_transport_cache_gc_calls_total":                       {"counter", "result", "Transports removed from the internal cache."},
}

var sections = []struct {
	title    string
	prefixes []string
}{
	{"Leadership, fence and watches", []string{"leadership_", "leader_election_", "running_managed_controllers"}},
	{"Queues and syncs", []string{"controller_events_", "controller_sync_", "workqueue_"}},
	{"ReplicaSets", []string{"replicaset_controller_"}},
	{"Deployments", []string{"deployment_controller_"}},
	{"Garbage collection", []string{"garbagecollector_"}},
	{"Nodes", []string{"node_collector_", "taint_eviction_controller_", "pod_gc_collector_"}},
	{"Namespaces", []string{"namespace_"}},
	{"EndpointSlices", []string{"endpoint_slice_controller_"}},
	{"Caches", []string{"informer_"}},
	{"Requests to the API server", []string{"rest_client_"}},
	{"Health", []string{"kubernetes_healthcheck"}},
	{"The program and its libraries", []string{""}},
}

const metricsPage = `# Metrics

Generated from a running program by a test (` + "`go test ./test/integration/deploy -run Rights -update`" + `); do not edit.

` + "`/metrics`" + ` serves all metrics except those under Health, which are served at ` + "`/metrics/slis`" + `. Both need the right to
` + "`get`" + ` the path: see deploy/prometheus/scraper.yaml. A standby serves the same metrics, except that
` + "`workqueue_*`" + ` series begin with its first term. Metrics of kube-controller-manager keep their names and meanings.
Entries without a text are metrics of Kubernetes libraries. Not listed are the ` + "`go_`" + ` and ` + "`process_`" + ` metrics of every Go program.

No label names an object, except namespaces in ` + "`namespace_deletion_blocked`" + `,
` + "`pod_gc_collector_force_delete_pods_total`" + ` and ` + "`_pod_errors_total`" + `. All other labels have few values.
`

func page(found map[string]family) string {
	var b strings.Builder
	b.WriteString(metricsPage)
	left := maps.Clone(found)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		for _, name := range slices.Sorted(maps.Keys(left)) {
			if !slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				continue
			}
			f := left[name]
			delete(left, name)
			writeEntry(&b, name, f)
		}
	}
	b.WriteString("\n## Only once it has happened\n\n")
	for _, name := range slices.Sorted(maps.Keys(onDemand)) {
		writeEntry(&b, name, onDemand[name])
	}
	return b.String()
}

// writeEntry writes the line of a metric, without the help of a library, which begins with a stability level.
func writeEntry(b *strings.Builder, name string, f family) {
	if f.labels != "" {
		name += "{" + f.labels + "}"
	}
	fmt.Fprintf(b, "- `%s`, %s", name, f.kind)
	if f.help != "" && !strings.HasPrefix(f.help, "[") {
		b.WriteString(": " + strings.NewReplacer("\\n", " ", "\n", " ", "<", "&lt;").Replace(f.help))
	}
	b.WriteString("\n")
}

func checkMetrics(t *testing.T, port int) {
	got := families(scrape(t, port, "/metrics"))
	maps.Copy(got, families(scrape(t, port, "/metrics/slis")))
	for name, want := range onDemand {
		if f, ok := got[name]; ok && (f.kind != want.kind || f.labels != want.labels) {
			t.Errorf("%s is %+v, want %+v", name, f, want)
		}
		delete(got, name)
	}
	if want := page(got); *update {
		controlplane.Must(t, os.WriteFile(filepath.Join(docsDir, "metrics.md"), []byte(want), 0o644))
	} else if diff := cmp.Diff(string(read(t, docsDir, "metrics.md")), want); diff != "" {
		t.Errorf("docs/metrics.md (-) is not what is served (+); if that is meant to be, go test ./test/integration/deploy -run Rights -update:\n%s", diff)
	}
}

// checkNames looks for names of the workload's objects in label values.
func checkNames(t *testing.T, port int) {
	named := map[string]bool{}
	for name, f := range scrape(t, port, "/metrics") {
		for _, m := range f.Metric {
			for _, pair := range m.Label {
				if strings.Contains(pair.GetValue(), marker) {
					named[name+" "+pair.GetName()] = true
				}
			}
		}
	}
	allowed := map[string]bool{
		"namespace_deletion_blocked namespace":               true,
		"pod_gc_collector_force_delete_pods_total namespace": true, "pod_gc_collector_force_delete_pod_errors_total namespace": true,
	}
	if !named["namespace_deletion_blocked namespace"] {
		t.Error("no metric names the namespace that is held up, so this test looks at the wrong thing")
	}
	for where := range named {
		if !allowed[where] {
			t.Errorf("metric and label %q name an object", where)
		}
	}
}
