package main

import (
	"cmp"
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

const (
	statePrefix = "failure-"
	// stateRate is the most requests per second that a manager may send for long in any state.
	stateRate = 100
	// stateStart is the time after the beginning of a state that is not counted. stateSpan is the time that is
	// counted, in windows of stateWindow.
	stateStart, stateSpan, stateWindow = 10, 40, 10 // s

	stateKeys        = 2_000
	stateTypes       = 300
	stateNodes       = 100
	podsPerNode      = 100
	stateNamespaces  = 200
	mapsPerNamespace = stateKeys / stateNamespaces
	// nodesSilent exceeds nodeGrace.
	nodesSilent  = 25 * time.Second
	toleratedFor = 20 * time.Second
	// podsCreatedIn exceeds the time in which 2,000 pods are created.
	podsCreatedIn       = 20 * time.Second
	beforeFreeze        = 5 * time.Second
	streamLag, streamUp = 5 * time.Second, 2 * time.Second
	forEver             = time.Hour
	awayKey             = "bench-away"
)

var (
	stateRequests = metric{"requests and connections, most in 10 s", "1/s"}
	stateLines    = metric{"log lines", "1/s"}
)

type state struct {
	name, about string
	setup       func(context.Context, *stage) error
	early       bool // the failure begins before the manager starts
	takeOver    bool
	begin       func(context.Context, *stage) error
	lead        time.Duration // from begin to the effect
}

type stage struct {
	*rig
	proxy          *faults.Proxy
	stopHeartbeats func() error // of all nodes
}

var states = []state{
	{name: "refused", about: "API server refuses connections", setup: withTypes, begin: outage(faults.Refused)},
	{name: "black-hole", about: "API server accepts connections and reads nothing", setup: withTypes, begin: outage(faults.BlackHole)},
	{name: "hanging", about: "API server answers pings and no request", setup: withTypes, begin: hang},
	{name: "503", about: "API server answers 503 to everything", setup: withTypes, begin: refuse(503)},
	{name: "401", about: "API server answers 401 to everything", setup: withTypes, begin: refuse(401)},
	{name: "403", about: "API server answers 403 to everything", setup: withTypes, begin: refuse(403)},
	{name: "cut-lists", about: "Proxy ends streaming lists before they are complete", setup: withTypes, early: true, begin: cutLists},
	{
		name: "pod-statuses", about: "All nodes fall silent, webhook refuses pods/status",
		setup: withNodes, begin: all(refuseWrites(admissionv1.Update, "", "pods/status"), silence), lead: nodesSilent,
	},
	{
		name: "pod-deletes", about: "All nodes are tainted, webhook refuses DELETE of pods",
		setup: withNodes, begin: all(refuseWrites(admissionv1.Delete, "", "pods"), taint(true)), lead: toleratedFor,
	},
	{
		name: "node-writes", about: "All nodes fall silent, webhook refuses nodes and nodes/status",
		setup: withNodes, begin: all(refuseWrites(admissionv1.Update, "", "nodes", "nodes/status"), silence), lead: nodesSilent,
	},
	{
		name: "node-rights", about: "All nodes fall silent, no right to write nodes",
		setup: withNodes, begin: all(forbidNodes, silence), lead: nodesSilent,
	},
	{name: "take-over", about: "Take-over without a failure", setup: withNodes, takeOver: true},
	{name: "frozen-take-over", about: "Take-over while the watch of nodes is frozen", setup: withNodes, takeOver: true, begin: freeze("nodes")},
	{
		name: "frozen-nodes", about: "Watch of nodes is frozen, taints are removed, deadlines of evictions pass",
		setup: withNodes, begin: all(taint(true), wait(beforeFreeze), freeze("nodes"), taint(false)), lead: toleratedFor,
	},
	{name: "frozen-leases", about: "Watch of Leases is frozen", setup: withNodes, begin: freeze("leases")},
	{
		name: "dependents", about: "Webhook refuses DELETE of 2,000 dependents",
		setup: withGarbage, begin: all(refuseWrites(admissionv1.Delete, "", "configmaps"), deleteOwner(metav1.DeletePropagationBackground)),
	},
	{
		name: "orphans", about: "Webhook refuses to release 2,000 orphans",
		setup: withGarbage, begin: all(refuseWrites(admissionv1.Update, "", "configmaps"), deleteOwner(metav1.DeletePropagationOrphan)),
	},
	{
		name: "namespaces", about: "Webhook refuses DELETE of the content of 200 namespaces",
		setup: withNamespaces, begin: all(refuseWrites(admissionv1.Delete, "", "configmaps"), deleteNamespaces),
	},
	{
		name: "pod-creates", about: "Webhook refuses CREATE of pods of 2,000 ReplicaSets",
		begin: all(refuseWrites(admissionv1.Create, "", "pods"), createSets),
	},
	{
		name: "set-statuses", about: "Webhook refuses statuses of 2,000 ReplicaSets",
		begin: all(refuseWrites(admissionv1.Update, "apps", "replicasets/status"), createSets), lead: podsCreatedIn,
	},
	{
		name: "set-creates", about: "Webhook refuses CREATE of ReplicaSets of 2,000 Deployments",
		begin: all(refuseWrites(admissionv1.Create, "apps", "replicasets"), createDeployments),
	},
	{
		name: "deployment-statuses", about: "Webhook refuses statuses of 2,000 Deployments",
		begin: all(refuseWrites(admissionv1.Update, "apps", "deployments/status"), createDeployments), lead: podsCreatedIn,
	},
}

// stateScenarios returns a scenario for each state.
func stateScenarios() []scenario {
	var list []scenario
	for _, s := range states {
		list = append(list, scenario{
			name: statePrefix + s.name, about: s.about, contestants: []contestant{ours}, long: true, maxRuns: 1,
			adds: []string{deploymentController, collectorController}, measure: s.measure,
		})
	}
	return list
}

// stateTargets returns a target for each state.
func stateTargets() []target {
	var list []target
	for _, s := range states {
		list = append(list, target{
			what: s.about + ", requests per second", of: key{statePrefix + s.name, ours.name, stateRequests.Name}, most: stateRate,
		})
	}
	return list
}

// measure begins the failure and counts the requests of the manager.
func (s state) measure(ctx context.Context, r *rig, c contestant) (readings []reading, err error) {
	st := &stage{rig: r, stopHeartbeats: func() error { return nil }}
	defer func() { err = errors.Join(err, st.stopHeartbeats()) }()
	if s.setup != nil {
		if err := s.setup(ctx, st); err != nil {
			return nil, fmt.Errorf("set up: %w", err)
		}
	}
	var leader *manager
	if s.takeOver {
		if leader, err = r.launch(c, leaderUser, "--leader-elect=true", nodeGrace); err != nil {
			return nil, err
		}
		if err := r.awaitWork(ctx); err != nil {
			return nil, err
		}
	}
	if st.proxy, err = r.interpose(); err != nil {
		return nil, err
	}
	begin := func() error {
		if s.begin == nil {
			return nil
		}
		return s.begin(ctx, st)
	}
	if s.early {
		if err := begin(); err != nil {
			return nil, err
		}
	}
	m, err := r.launch(c, managerUser, "--leader-elect=true", nodeGrace)
	if err != nil {
		return nil, err
	}
	switch {
	case s.early:
	case s.takeOver:
		if err := errors.Join(pause(ctx, standbyWarm), begin(), leader.end(syscall.SIGTERM)); err != nil {
			return nil, err
		}
	default:
		if err := errors.Join(r.awaitWork(ctx), pause(ctx, standbyWarm), begin()); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, s.lead+stateStart*time.Second); err != nil {
		return nil, err
	}
	return st.countRequests(ctx, m)
}

// countRequests returns the highest rate of requests, connections and refused connection attempts in any window,
// and the rate of log lines.
func (st *stage) countRequests(ctx context.Context, m *manager) ([]reading, error) {
	begin, lines := time.Now(), strings.Count(m.Output(), "\n")
	dials := make([]int, stateSpan+1)
	for i := range dials {
		refused, err := refusedDials()
		if err != nil {
			return nil, err
		}
		dials[i] = refused + st.proxy.Connections()
		if i < stateSpan {
			if err := pause(ctx, time.Until(begin.Add(time.Duration(i+1)*time.Second))); err != nil {
				return nil, err
			}
		}
	}
	lines = strings.Count(m.Output(), "\n") - lines
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
	return []reading{{stateRequests, float64(most) / stateWindow}, {stateLines, float64(lines) / stateSpan}}, st.keepRequests(requests)
}

// keepRequests writes the number of requests of each kind to a file, if logs are kept.
func (st *stage) keepRequests(requests []faults.Request) error {
	if st.logs == "" {
		return nil
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
	return os.WriteFile(filepath.Join(st.logs, st.label+".requests"), []byte(b.String()), 0o600)
}

// all joins steps.
func all(steps ...func(context.Context, *stage) error) func(context.Context, *stage) error {
	return func(ctx context.Context, st *stage) error {
		for _, step := range steps {
			if err := step(ctx, st); err != nil {
				return err
			}
		}
		return nil
	}
}

func wait(d time.Duration) func(context.Context, *stage) error {
	return func(ctx context.Context, _ *stage) error { return pause(ctx, d) }
}

func withTypes(ctx context.Context, st *stage) error { return st.defineMany(ctx, stateTypes) }

func withNodes(ctx context.Context, st *stage) error {
	names := nodeNames(stateNodes)
	if err := inParallel(ctx, writers, stateNodes, func(ctx context.Context, i int) error { return st.registerNode(ctx, names[i]) }); err != nil {
		return err
	}
	st.stopHeartbeats = st.startKubelets(ctx, fewRenewers, names)
	return inParallel(ctx, writers, stateNodes*podsPerNode, func(ctx context.Context, i int) error {
		pod := controlplane.Pod(benchNamespace, fmt.Sprintf("pod-%d", i), nil, func(p *corev1.Pod) {
			p.Spec.NodeName = names[i%stateNodes]
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
			p.Spec.Tolerations = []corev1.Toleration{{
				Key: awayKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To(int64(toleratedFor / time.Second)),
			}}
		})
		pod, err := st.client.CoreV1().Pods(benchNamespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		return kubelet.Post(ctx, st.client, pod, kubelet.Ready, "", "")
	})
}

func withGarbage(ctx context.Context, st *stage) error {
	owner, err := st.configMap(ctx, "owner", nil)
	if err != nil {
		return err
	}
	return st.dependents(ctx, owner, "dependent", stateKeys)
}

func withNamespaces(ctx context.Context, st *stage) error {
	_, err := st.createNamespaces(ctx, "full", stateNamespaces, func(ctx context.Context, namespace string) error {
		for i := range mapsPerNamespace {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("content-%d", i)}}
			if _, err := st.client.CoreV1().ConfigMaps(namespace).Create(ctx, m, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create ConfigMap: %w", err)
			}
		}
		return nil
	})
	return err
}

func deleteNamespaces(ctx context.Context, st *stage) error {
	return inParallel(ctx, writers, stateNamespaces, func(ctx context.Context, i int) error {
		return st.client.CoreV1().Namespaces().Delete(ctx, fmt.Sprintf("full-%d", i), metav1.DeleteOptions{})
	})
}

func createSets(ctx context.Context, st *stage) error {
	return inParallel(ctx, writers, stateKeys, func(ctx context.Context, i int) error {
		set := controlplane.ReplicaSet(benchNamespace, setName(i), 1)
		_, err := st.client.AppsV1().ReplicaSets(benchNamespace).Create(ctx, set, metav1.CreateOptions{})
		return err
	})
}

func createDeployments(ctx context.Context, st *stage) error {
	return inParallel(ctx, writers, stateKeys, func(ctx context.Context, i int) error {
		return st.createDeployment(ctx, deploymentName(i), 1)
	})
}

func deleteOwner(policy metav1.DeletionPropagation) func(context.Context, *stage) error {
	return func(ctx context.Context, st *stage) error { return st.deleteMap(ctx, "owner", policy) }
}

func outage(o faults.Outage) func(context.Context, *stage) error {
	return func(_ context.Context, st *stage) error { return st.proxy.Outage(o) }
}

func hang(_ context.Context, st *stage) error {
	st.proxy.FreezeWatches(faults.Watches())
	st.proxy.Inject(faults.Match{}, faults.DelayRequest(forEver))
	return nil
}

func refuse(code int) func(context.Context, *stage) error {
	return func(_ context.Context, st *stage) error {
		st.proxy.Inject(faults.Match{}, faults.Refuse(code))
		st.proxy.CutConnections()
		return nil
	}
}

func cutLists(_ context.Context, st *stage) error {
	st.proxy.SlowWatches(faults.StreamingLists(), streamLag)
	st.proxy.CutIdleWatches(faults.StreamingLists(), streamUp)
	return nil
}

func freeze(resource string) func(context.Context, *stage) error {
	return func(_ context.Context, st *stage) error {
		st.proxy.FreezeWatches(faults.Watches(resource))
		return nil
	}
}

func silence(_ context.Context, st *stage) error { return st.stopHeartbeats() }

func refuseWrites(operation admissionv1.OperationType, group string, resources ...string) func(context.Context, *stage) error {
	return func(ctx context.Context, st *stage) error {
		return st.breakWebhook(ctx, operation, group, resources...)
	}
}

func forbidNodes(_ context.Context, st *stage) error {
	st.proxy.Inject(faults.On(faults.Writes, "nodes/*"), faults.Refuse(403))
	return nil
}

func taint(on bool) func(context.Context, *stage) error {
	patch := `{"spec":{"taints":null}}`
	if on {
		patch = fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoExecute"}]}}`, awayKey)
	}
	return func(ctx context.Context, st *stage) error {
		return inParallel(ctx, writers, stateNodes, func(ctx context.Context, i int) error {
			_, err := st.client.CoreV1().Nodes().Patch(ctx, nodeName(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		})
	}
}
