package deploy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type family struct {
	kind   string // counter, gauge or histogram
	labels string // names, sorted, without le
	help   string
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
	labelPair  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
	tableRow   = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| (.*) \\|$")
)

// families parses the text format, without the metrics that every Go process has.
func families(text string) map[string]family {
	found, labels := map[string]family{}, map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		if fields := strings.SplitN(strings.TrimSpace(line), " ", 4); len(fields) == 4 && fields[0] == "#" {
			f := found[fields[2]]
			if fields[1] == "HELP" {
				f.help = fields[3]
			} else {
				f.kind = fields[3]
			}
			found[fields[2]] = f
			continue
		}
		sample := sampleLine.FindStringSubmatch(line)
		if sample == nil {
			continue
		}
		name := base(sample[1], func(name string) bool { return found[name].kind == "histogram" })
		if labels[name] == nil {
			labels[name] = map[string]bool{}
		}
		for _, pair := range labelPair.FindAllStringSubmatch(sample[2], -1) {
			if pair[1] != "le" {
				labels[name][pair[1]] = true
			}
		}
	}
	for name, f := range found {
		f.labels = strings.Join(slices.Sorted(maps.Keys(labels[name])), ", ")
		found[name] = f
	}
	maps.DeleteFunc(found, func(name string, _ family) bool {
		return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
	})
	return found
}

func base(series string, histogram func(string) bool) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && histogram(name) {
			return name
		}
	}
	return series
}

var onDemand = map[string]family{
	"garbagecollector_type_failing":              {"gauge", "group, resource", "1 for each type whose objects cannot be listed or watched."},
	"rest_client_exec_plugin_call_total":         {"counter", "call_status, code", "Calls of a credential plugin that the kubeconfig names."},
	"rest_client_rate_limiter_duration_seconds":  {"histogram", "host, verb", "Waits for --kube-api-qps, if it is positive."},
	"rest_client_request_retries_total":          {"counter", "code, host, verb", "Requests that were sent again because the response demanded a retry."},
	"rest_client_transport_ca_reload_total":      {"counter", "reason, result", "Checks of the CA file of the kubeconfig."},
	"rest_client_transport_cache_gc_calls_total": {"counter", "result", "Transports removed from the internal cache."},
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
` + "`get`" + ` the path: see deploy/prometheus/scraper.yaml. Metrics of kube-controller-manager keep their names and meanings. A standby serves
all metrics; its queues are empty. Metrics without a meaning are those of client-go and component-base; see the metrics reference of Kubernetes. Not listed are the ` + "`go_`" + ` and ` + "`process_`" + ` metrics of every Go program.

No label names an object, with two exceptions. ` + "`namespace_deletion_blocked`" + ` names namespaces
while they are held up, in 100 series at most. ` + "`pod_gc_collector_force_delete_pods_total`" + ` and ` + "`_pod_errors_total`" + ` have the
pods' namespace as a label, like upstream. Zones are those of your nodes. All other labels have few, fixed values.
`

func page(found map[string]family) string {
	var b strings.Builder
	b.WriteString(metricsPage)
	left := maps.Clone(found)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s", s.title, tableHead)
		for _, name := range slices.Sorted(maps.Keys(left)) {
			if !slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				continue
			}
			f := left[name]
			delete(left, name)
			writeRow(&b, name, f)
		}
	}
	b.WriteString("\n## Only once it has happened\n\n" + tableHead)
	for _, name := range slices.Sorted(maps.Keys(onDemand)) {
		writeRow(&b, name, onDemand[name])
	}
	return b.String()
}

const tableHead = "| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"

func writeRow(b *strings.Builder, name string, f family) {
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, f.kind, f.labels, cell(f.help))
}

// cell escapes a help text for a table. Metrics of libraries, whose texts begin with a stability level, have none.
func cell(help string) string {
	if strings.HasPrefix(help, "[") {
		return ""
	}
	return strings.NewReplacer("|", `\|`, "\\n", " ", "\n", " ", "<", "&lt;").Replace(help)
}

// documented reads the page back.
func documented(t *testing.T) map[string]family {
	t.Helper()
	found := map[string]family{}
	for line := range strings.Lines(string(read(t, docsDir, "metrics.md"))) {
		if row := tableRow.FindStringSubmatch(strings.TrimSuffix(line, "\n")); row != nil {
			found[row[1]] = family{kind: row[2], labels: row[3], help: row[4]}
		}
	}
	return found
}

func checkMetrics(t *testing.T, scraper endpoint) {
	got := families(scraper.expect(t, "/metrics", 200))
	maps.Copy(got, families(scraper.expect(t, "/metrics/slis", 200)))
	for name, want := range onDemand {
		if f, ok := got[name]; ok && (f.kind != want.kind || f.labels != want.labels) {
			t.Errorf("%s is %+v, want %+v", name, f, want)
		}
		delete(got, name)
	}
	if want := page(got); *update {
		must(t, os.WriteFile(filepath.Join(docsDir, "metrics.md"), []byte(want), 0o644))
	} else if diff := cmp.Diff(string(read(t, docsDir, "metrics.md")), want); diff != "" {
		t.Errorf("docs/metrics.md (-) is not what is served (+); if that is meant to be, go test ./test/integration/deploy -run Rights -update:\n%s", diff)
	}
}

// checkNames looks for names of the workload's objects in label values.
func checkNames(t *testing.T, scraper endpoint) {
	named := map[string]bool{}
	for line := range strings.Lines(scraper.expect(t, "/metrics", 200)) {
		if sample := sampleLine.FindStringSubmatch(line); sample != nil {
			for _, pair := range labelPair.FindAllStringSubmatch(sample[2], -1) {
				if strings.Contains(pair[2], marker) {
					named[sample[1]+" "+pair[1]] = true
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
