package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
	"minikcm/test/must"
)

const (
	stateRequests = "requests and connections, most in 10 s"
	// stateRate is the most requests per second that a manager may send for long in any state.
	stateRate = 100
	// stateStart is the time after the beginning of a state that is not counted. stateSpan is the time that is
	// counted, in windows of stateWindow.
	stateStart, stateSpan, stateWindow = 10, 40, 10 // s

	stateKeys       = 2_000
	stateTypes      = 300
	stateNodes      = 100
	podsPerNode     = 100
	stateNamespaces = 200
	nodeGrace       = "--node-monitor-grace-period=20s"
	// silentFor exceeds nodeGrace and the monitor period.
	silentFor    = 30 * time.Second
	contentGrace = 5 * time.Second // default of --namespace-deletion-grace-period
	toleratedFor = 20 * time.Second
	// podsCreatedIn exceeds the time in which 2,000 pods are created.
	podsCreatedIn       = 20 * time.Second
	beforeFreeze        = 5 * time.Second
	streamLag, streamUp = 5 * time.Second, 2 * time.Second
	awayKey             = "bench-away"
)

// state is a failure that lasts.
type state struct {
	name, about string
	setup       step
	early       bool // the failure begins before the manager starts
	takeOver    bool
	alone       bool // without leader election: a former leader ends after 10 s of rejected credentials
	begin       step
	lead        time.Duration // from begin to the effect
}

type step func(context.Context, *stage)

// stage is the rig of a state.
type stage struct {
	*rig
	proxy      *faults.Proxy
	stopLeases func() // of all nodes
}

var states = []state{
	{name: "refused", about: "API server refuses connections", setup: withTypes, begin: beginOutage(faults.Refused)},
	{name: "black-hole", about: "API server accepts connections and reads nothing", setup: withTypes, begin: beginOutage(faults.BlackHole)},
	{name: "hanging", about: "API server accepts pings and no request", setup: withTypes, begin: hangRequests},
	{name: "503", about: "API server returns 503 to every request", setup: withTypes, begin: refuseAll(503)},
	{name: "401", about: "API server returns 401 to every request", setup: withTypes, begin: refuseAll(401), alone: true},
	{name: "403", about: "API server returns 403 to every request", setup: withTypes, begin: refuseAll(403)},
	{name: "cut-lists", about: "Proxy ends streaming lists before they are complete", setup: withTypes, early: true, begin: cutLists},
	{
		name: "pod-statuses", about: "All nodes fall silent, webhook refuses pods/status",
		setup: withNodes, begin: inOrder(reject(admissionv1.Update, "", "pods/status"), silenceNodes), lead: silentFor,
	},
	{
		name: "pod-deletes", about: "All nodes are tainted, webhook refuses DELETE of pods",
		setup: withNodes, begin: inOrder(reject(admissionv1.Delete, "", "pods"), setTaints(true)), lead: toleratedFor,
	},
	{
		name: "node-writes", about: "All nodes fall silent, webhook refuses nodes and nodes/status",
		setup: withNodes, begin: inOrder(reject(admissionv1.Update, "", "nodes", "nodes/status"), silenceNodes), lead: silentFor,
	},
	{
		name: "node-rights", about: "All nodes fall silent, no right to write nodes",
		setup: withNodes, begin: inOrder(forbidNodes, silenceNodes), lead: silentFor,
	},
	{name: "take-over", about: "Take-over without a failure", setup: withNodes, takeOver: true},
	{name: "frozen-take-over", about: "Take-over while the watch of nodes is frozen", setup: withNodes, takeOver: true, begin: freezeWatch("nodes")},
	{
		name: "frozen-nodes", about: "Watch of nodes is frozen, taints are removed, deadlines of evictions pass",
		setup: withNodes, begin: inOrder(setTaints(true), waitFor(beforeFreeze), freezeWatch("nodes"), setTaints(false)), lead: toleratedFor,
	},
	{name: "frozen-leases", about: "Watch of Leases is frozen", setup: withNodes, begin: freezeWatch("leases")},
	{
		name: "dependents", about: "Webhook refuses DELETE of 2,000 dependents",
		setup: withDependents, begin: inOrder(reject(admissionv1.Delete, "", "configmaps"), deleteOwner(metav1.DeletePropagationBackground)),
	},
	{
		name: "orphans", about: "Webhook refuses to release 2,000 orphans",
		setup: withDependents, begin: inOrder(reject(admissionv1.Update, "", "configmaps"), deleteOwner(metav1.DeletePropagationOrphan)),
	},
	{
		name: "namespaces", about: "Webhook refuses DELETE of the content of 200 namespaces",
		setup: withNamespaces, begin: inOrder(reject(admissionv1.Delete, "", "configmaps"), deleteAllNamespaces), lead: contentGrace,
	},
	{
		name: "pod-creates", about: "Webhook refuses CREATE of pods of 2,000 ReplicaSets",
		begin: inOrder(reject(admissionv1.Create, "", "pods"), createSets),
	},
	{
		name: "set-statuses", about: "Webhook refuses statuses of 2,000 ReplicaSets",
		begin: inOrder(reject(admissionv1.Update, "apps", "replicasets/status"), createSets), lead: podsCreatedIn,
	},
	{
		name: "set-creates", about: "Webhook refuses CREATE of ReplicaSets of 2,000 Deployments",
		begin: inOrder(reject(admissionv1.Create, "apps", "replicasets"), createDeployments),
	},
	{
		name: "deployment-statuses", about: "Webhook refuses statuses of 2,000 Deployments",
		begin: inOrder(reject(admissionv1.Update, "apps", "deployments/status"), createDeployments), lead: podsCreatedIn,
	},
}

// stateScenarios returns a scenario for each state.
func stateScenarios() (list []scenario) {
	for _, s := range states {
		list = append(list, scenario{
			name: "failure-" + s.name, about: s.about, contestants: []contestant{ours}, long: true, maxRuns: 1,
			adds: deploymentController + "," + collectorController, measure: s.measure, targets: []target{{metric: stateRequests, most: stateRate}},
		})
	}
	return list
}

// measure begins the failure and counts the requests of the manager.
func (s state) measure(ctx context.Context, r *rig, c contestant) []reading {
	st := &stage{rig: r, stopLeases: func() {}}
	defer func() { st.stopLeases() }()
	if s.setup != nil {
		s.setup(ctx, st)
	}
	var leader *manager
	if s.takeOver {
		leader = r.launch(c, leaderUser, "--leader-elect=true", nodeGrace)
		r.awaitWork(ctx)
	}
	st.proxy = r.startProxy()
	if s.early {
		s.begin(ctx, st)
	}
	m := r.launch(c, managerUser, fmt.Sprint("--leader-elect=", !s.alone), nodeGrace)
	if !s.early {
		if !s.takeOver {
			r.awaitWork(ctx)
		}
		must.Pause(ctx, standbyWarm)
		if s.begin != nil {
			s.begin(ctx, st)
		}
	}
	if s.takeOver {
		leader.sendSignal(syscall.SIGTERM)
	}
	must.Pause(ctx, s.lead+stateStart*time.Second)
	return st.countRequests(ctx, m)
}

// countRequests returns the highest rate of requests, connections and refused connection attempts in any window,
// and the rate of log lines.
func (st *stage) countRequests(ctx context.Context, m *manager) []reading {
	begin, lines := time.Now(), m.logLines()
	dials := make([]int, stateSpan+1)
	for i := range dials {
		must.Pause(ctx, time.Until(begin.Add(time.Duration(i)*time.Second)))
		dials[i] = int(refusedDials()) + st.proxy.Connections()
	}
	lines = m.logLines() - lines
	requests := slices.DeleteFunc(st.proxy.Requests(), func(q faults.Request) bool { return q.Time.Before(begin) })
	most := 0
	for from := 0; from+stateWindow <= stateSpan; from++ {
		sum := dials[from+stateWindow] - dials[from]
		for _, q := range requests {
			if second := int(q.Time.Sub(begin) / time.Second); from <= second && second < from+stateWindow {
				sum++
			}
		}
		most = max(most, sum)
	}
	st.keepRequests(requests)
	return []reading{{stateRequests, "1/s", float64(most) / stateWindow}, {"log lines", "1/s", float64(lines) / stateSpan}}
}

// keepRequests writes the number of requests of each kind to a file, if logs are kept.
func (st *stage) keepRequests(requests []faults.Request) {
	if st.logs == "" {
		return
	}
	counts := map[string]int{}
	for _, q := range requests {
		_, loop, _ := strings.Cut(q.UserAgent, " ")
		counts[fmt.Sprintf("%s %s %s %d", loop[strings.LastIndex(loop, "/")+1:], q.Verb, cmp.Or(q.Resource, q.Path), q.Code)]++
	}
	var b strings.Builder
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return counts[b] - counts[a] }) {
		fmt.Fprintf(&b, "%7d in %d s: %s\n", counts[kind], stateSpan, kind)
	}
	must.Succeed(os.WriteFile(filepath.Join(st.logs, st.label+".requests"), []byte(b.String()), 0o600))
}

func inOrder(steps ...step) step {
	return func(ctx context.Context, st *stage) {
		for _, do := range steps {
			do(ctx, st)
		}
	}
}

func waitFor(d time.Duration) step { return func(ctx context.Context, _ *stage) { must.Pause(ctx, d) } }

func withTypes(ctx context.Context, st *stage) { createTypes(stateTypes)(ctx, st.rig) }

func withNodes(ctx context.Context, st *stage) {
	st.registerNodes(ctx, stateNodes)
	st.stopLeases = st.renewLeases(ctx, stateNodes)
	must.ForEach(ctx, writers, stateNodes*podsPerNode, func(ctx context.Context, i int) {
		pod := controlplane.Pod(benchNamespace, fmt.Sprint("pod-", i), nil, func(p *corev1.Pod) {
			p.Spec.NodeName = nodeName(i % stateNodes)
			p.Spec.TerminationGracePeriodSeconds = new(int64)
			p.Spec.Tolerations = []corev1.Toleration{{
				Key: awayKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(toleratedFor / time.Second)),
			}}
		})
		st.create(ctx, pod)
		must.Succeed(kubelet.Post(ctx, st.kube, pod, kubelet.Ready, "", ""))
	})
}

func withDependents(ctx context.Context, st *stage) { st.createDependents(ctx) }

func withNamespaces(ctx context.Context, st *stage) {
	st.createNamespaces(ctx, "full", stateNamespaces, func(ctx context.Context, namespace string) {
		for i := range stateKeys / stateNamespaces {
			st.create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("content-", i)}})
		}
	})
}

func deleteAllNamespaces(ctx context.Context, st *stage) {
	names := make([]string, stateNamespaces)
	for i := range names {
		names[i] = fmt.Sprint("full-", i)
	}
	st.deleteNamespaces(ctx, names)
}

func createSets(ctx context.Context, st *stage) {
	must.ForEach(ctx, writers, stateKeys, func(ctx context.Context, i int) {
		st.create(ctx, controlplane.ReplicaSet(benchNamespace, setName(i), 1))
	})
}

func createDeployments(ctx context.Context, st *stage) {
	must.ForEach(ctx, writers, stateKeys, func(ctx context.Context, i int) {
		st.create(ctx, controlplane.Deployment(benchNamespace, deploymentName(i), 1))
	})
}

func deleteOwner(policy metav1.DeletionPropagation) step {
	return func(ctx context.Context, st *stage) {
		must.Succeed(st.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta("owner")}, client.PropagationPolicy(policy)))
	}
}

func beginOutage(o faults.Outage) step {
	return func(_ context.Context, st *stage) { must.Succeed(st.proxy.Outage(o)) }
}

func hangRequests(_ context.Context, st *stage) {
	st.proxy.FreezeWatches(faults.Watches())
	st.proxy.Inject(faults.Match{}, faults.DelayRequest(time.Hour))
}

func refuseAll(code int) step {
	return func(_ context.Context, st *stage) {
		st.proxy.Inject(faults.Match{}, faults.Refuse(code))
		st.proxy.CutConnections()
	}
}

func cutLists(_ context.Context, st *stage) {
	st.proxy.SlowWatches(faults.StreamingLists(), streamLag)
	st.proxy.CutIdleWatches(faults.StreamingLists(), streamUp)
}

func freezeWatch(resource string) step {
	return func(_ context.Context, st *stage) { st.proxy.FreezeWatches(faults.Watches(resource)) }
}

func silenceNodes(_ context.Context, st *stage) { st.stopLeases() }

func reject(operation admissionv1.OperationType, group string, resources ...string) step {
	return func(ctx context.Context, st *stage) { st.rejectWrites(ctx, operation, group, resources...) }
}

func forbidNodes(_ context.Context, st *stage) {
	st.proxy.Inject(faults.On(faults.Writes, "nodes/*"), faults.Refuse(403))
}

func setTaints(on bool) step {
	patch := `{"spec":{"taints":null}}`
	if on {
		patch = fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoExecute"}]}}`, awayKey)
	}
	return func(ctx context.Context, st *stage) {
		must.ForEach(ctx, writers, stateNodes, func(ctx context.Context, i int) { st.patch(ctx, controlplane.Node(nodeName(i)), patch) })
	}
}
