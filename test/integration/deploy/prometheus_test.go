package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
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

// An answer takes more than a second on a busy machine, so an interval of a second would leave gaps in which a rise is not seen.
const scrapeInterval, rateInterval = "5s", "30s"

// prometheusConfig writes the configuration of deploy/ for a Prometheus outside of the cluster, with a pace that a test can wait for. It
// returns the file. The edits are of its scrape configuration.
func prometheusConfig(t *testing.T, edits ...func(scrape map[string]any)) string {
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
	scrape["scrape_interval"], scrape["scrape_timeout"] = scrapeInterval, scrapeInterval
	for _, edit := range edits {
		edit(scrape)
	}
	text, err := sigsyaml.Marshal(config)
	must(t, err)
	path := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// A ServiceMonitor is turned into discovery through the Service, by one of two types of objects.
func TestPrometheusOperatorsWayFindsAReplica(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	newApplier(t).keep(t, kustomize(t, everythingsRights)...)
	var objects []*unstructured.Unstructured
	for _, o := range render(t, "prometheus-operator") {
		switch o.GetKind() {
		case "ServiceMonitor", "PrometheusRule":
			if l := o.GetLabels(); l["release"] == "" || l["role"] != "alert-rules" || l["prometheus"] != "k8s" {
				t.Errorf("%s has labels %v, which no operator selects", identify(o), l)
			}
		default:
			objects = append(objects, o)
		}
	}
	newApplier(t).keep(t, objects...)
	replica := startReplica(t)
	discoverable(t, "controller-manager-found", replica.address)
	serviceEndpoints(t, "controller-manager-found")
	for role, meta := range map[string]string{"endpoints": "endpoint", "endpointslice": "endpointslice"} {
		t.Run(role, func(t *testing.T) {
			p := startPrometheus(t, func(scrape map[string]any) {
				scrape["kubernetes_sd_configs"].([]any)[0].(map[string]any)["role"] = role
				scrape["relabel_configs"] = []any{
					map[string]any{"source_labels": []any{"__meta_kubernetes_service_label_app_kubernetes_io_name"}, "regex": "controller-manager", "action": "keep"},
					map[string]any{"source_labels": []any{"__meta_kubernetes_" + meta + "_port_name"}, "regex": "https", "action": "keep"},
					map[string]any{"source_labels": []any{"__meta_kubernetes_service_name"}, "target_label": "job"},
					map[string]any{"source_labels": []any{"__meta_kubernetes_pod_name"}, "target_label": "pod"},
					map[string]any{"replacement": replica.address, "target_label": "__address__"}, // endpoints may not be on loopback
				}
			})
			p.eventually(t, `up{job="controller-manager",pod="controller-manager-found"} == 1`)
		})
	}
}

// serviceEndpoints makes what the controllers for endpoints would make of the Service and a pod.
func serviceEndpoints(t *testing.T, pod string) {
	t.Helper()
	const name, host, port = "controller-manager", "192.0.2.1", int32(10257)
	client := cluster.Client(t)
	target := &corev1.ObjectReference{Kind: "Pod", Namespace: "kube-system", Name: pod}
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": name, discoveryv1.LabelServiceName: name}}
	//lint:ignore SA1019 operators still ask for these unless told otherwise
	_, err := client.CoreV1().Endpoints("kube-system").Create(t.Context(), &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: host, TargetRef: target}}, Ports: []corev1.EndpointPort{{Name: "https", Port: port}},
	}}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = client.CoreV1().Endpoints("kube-system").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	_, err = client.DiscoveryV1().EndpointSlices("kube-system").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}, TargetRef: target}}, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(port)}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = client.DiscoveryV1().EndpointSlices("kube-system").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// discoverable makes a pod of the labels, the port and the name that deploy/deployment gives to a replica, for one that listens at
// address.
func discoverable(t *testing.T, name, address string, edits ...func(*corev1.Pod)) {
	t.Helper()
	template := deployment(t).Spec.Template
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	pod := controlplane.Pod("kube-system", name, template.Labels)
	pod.Spec.Containers[0].Ports = template.Spec.Containers[0].Ports
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
	nobody := fmt.Sprintf("127.0.0.1:%d", controlplane.FreePort(t))
	discoverable(t, "another-program", nobody, func(p *corev1.Pod) { p.Labels = map[string]string{"app.kubernetes.io/name": "another-program"} })
	discoverable(t, "another-port", nobody, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Name = "debug" })
	discoverable(t, "finished", nobody, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
}

// TestPrometheusScrapesTwoReplicas lets a real Prometheus ask everything that alerts and dashboard ask, while there is something to
// see in every panel: each controller works, one is refused, and a replica takes over from the other.
func TestPrometheusScrapesTwoReplicas(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	newApplier(t).keep(t, kustomize(t, everythingsRights)...)
	newApplier(t).keep(t, render(t, "prometheus")...)
	_ = cluster.Client(t).CoordinationV1().Leases("kube-system").Delete(t.Context(), "controller-manager", metav1.DeleteOptions{}) // of an earlier test
	// Nodes live for two scrapes, or their zone would not be seen before one is given up.
	flags := []string{everything, "--node-monitor-grace-period=12s", "--node-startup-grace-period=12s"}
	leader, standby := startReplica(t, flags...), startReplica(t, flags...)
	discoverable(t, "controller-manager-a", leader.address)
	discoverable(t, "controller-manager-b", standby.address)
	decoys(t)
	p := startPrometheus(t)

	p.eventually(t, `count(up{job="controller-manager",pod=~"controller-manager-[ab]"} == 1) == 2 and sum(leader_election_master_status) == 1`)
	w := startWorkload(t, "scraped")
	w.wait(t)
	of := func(takeovers bool) (list []query) {
		for _, q := range queries(t) {
			if strings.Contains(q.expr, "leadership_takeover_") == takeovers {
				list = append(list, q)
			}
		}
		return list
	}
	p.answers(t, of(false)) // what a leader did last may never be scraped
	if who, err := p.seen(`leader_election_master_status == 1 and on (pod) up{pod="controller-manager-b"}`); err != nil || len(who) > 0 {
		leader = standby // both had the same chance
	}
	must(t, leader.process.Signal(syscall.SIGTERM))
	p.eventually(t, `sum(increase(leadership_takeover_duration_seconds_count{cause="released"}[`+rateInterval+`])) > 0`)
	p.answers(t, of(true))
	if others, err := p.seen(`up{pod!~"controller-manager-[ab]"}`); err != nil || len(others) > 0 {
		t.Errorf("scraped as well: %v, %v", others, err)
	}
	w.letGo(t)
	checkDiscovery(t)
}

// answers waits until each query has been answered by numbers at some time, and by another one than 0 unless all was calm.
func (p prometheus) answers(t *testing.T, queries []query) {
	t.Helper()
	for _, q := range queries {
		exprs := []string{q.expr}
		if q.isAlert { // all is well now, so ask for what it looks at
			exprs = selector.FindAllString(q.expr, -1)
		}
		for _, expr := range exprs {
			if strings.Contains(expr, `job="kube-controller-manager"`) {
				continue // the other manager does not run here
			}
			if _, ok := onDemand[selector.FindStringSubmatch(expr)[1]]; ok {
				continue // nothing of the kind happens here
			}
			controlplane.Eventually(t, patience, func(context.Context) error {
				answer, err := p.seen(expr)
				if err == nil && len(answer) == 0 {
					err = fmt.Errorf("no number at any time for %s", expr)
				}
				if err == nil && expr == q.expr && !calm.MatchString(expr) {
					if answer, err = p.seen("(" + expr + ") != 0"); len(answer) == 0 {
						err = errors.Join(err, fmt.Errorf("always 0: %s", expr))
					}
				}
				if err != nil {
					return fmt.Errorf("%s: %w", q.from, err)
				}
				t.Logf("%s\n  %s\n  %s", q.from, expr, strings.Join(answer, "\n  "))
				return nil
			})
		}
	}
}

// calm are the metrics that are 0 as long as all is well, or in most moments.
var calm = regexp.MustCompile(`leadership_(watch_stale|watch_reopenings|fence_|terms_ended)|informer_queued_items|workqueue_(depth|longest)|_panics_total|` +
	`replicaset_controller_(live_reads|unknown_outcomes|stale_sync_skips)|deployment_controller_(deferred_syncs|live_reads|longest_stalled)|garbagecollector_(blocked_objects|released|controller_resources|would|longest)|node_collector_(zone_state|suspended|skipped|pending_taints)|taint_eviction_controller_evictions_pending|rest_client_certificate_expiration`)

// checkDiscovery shows that Prometheus has used its rights to find the pods.
func checkDiscovery(t *testing.T) {
	t.Helper()
	requests := cluster.AuditLog(t, controlplane.Received, controlplane.ByUser("system:serviceaccount:monitoring:prometheus"))
	granted := rights(t, render(t, "prometheus"))
	if len(granted) == 0 {
		t.Error("no rights found")
	}
	for _, r := range granted {
		if _, excused := unused[r.role+": "+r.String()]; !excused && len(requests.Where(func(e *auditv1.Event) bool { return r.allows(e) })) == 0 {
			t.Errorf("%s: the right to %s is not used", r.role, r)
		}
	}
}

// prometheus is one that runs, with when it began.
type prometheus struct {
	address string
	begin   time.Time
}

func startPrometheus(t *testing.T, edits ...func(scrape map[string]any)) prometheus {
	t.Helper()
	p := prometheus{address: fmt.Sprintf("127.0.0.1:%d", controlplane.FreePort(t)), begin: time.Now()}
	controlplane.StartProgram(t, built(t, "prometheus"), "--config.file="+prometheusConfig(t, edits...), "--storage.tsdb.path="+t.TempDir(),
		"--web.listen-address="+p.address, "--log.level=warn")
	return p
}

// eventually waits until expr has an answer.
func (p prometheus) eventually(t *testing.T, expr string) {
	t.Helper()
	controlplane.Eventually(t, patience, func(context.Context) error {
		answer, err := p.seen(expr)
		if err == nil && len(answer) == 0 {
			err = fmt.Errorf("no answer to %s", expr)
		}
		return err
	})
}

// seen asks for expr at each second since the beginning, as a dashboard does. It returns a line for each series that was a number
// at some time, with the last one.
func (p prometheus) seen(expr string) ([]string, error) {
	form := url.Values{"query": {expr}, "step": {"1"}, "start": {seconds(p.begin)}, "end": {seconds(time.Now())}}
	answer, err := http.Get("http://" + p.address + "/api/v1/query_range?" + form.Encode())
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any // time, value
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
		r.Values = slices.DeleteFunc(r.Values, func(v [2]any) bool { return v[1] == "NaN" })
		if n := len(r.Values); n > 0 {
			lines = append(lines, fmt.Sprintf("%v = %v", r.Metric, r.Values[n-1][1]))
		}
	}
	return lines, nil
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
