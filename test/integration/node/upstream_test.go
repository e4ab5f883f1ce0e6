package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
)

// shortGrace is the timing of upstream's test/integration/node: a node without heartbeats lives for one period.
func shortGrace() node.Config {
	cfg := defaults()
	cfg.MonitorPeriod, cfg.StartupGracePeriod, cfg.MonitorGracePeriod = time.Second, time.Minute, time.Millisecond
	cfg.EvictionRate, cfg.SecondaryEvictionRate = 100, 100
	return cfg
}

// longPeriod is the timing of upstream's test/integration/scheduler/taint: what a node posts stands, grace or not.
func longPeriod() node.Config {
	cfg := defaults()
	cfg.MonitorPeriod, cfg.StartupGracePeriod, cfg.MonitorGracePeriod = time.Hour, time.Second, time.Second
	cfg.EvictionRate, cfg.SecondaryEvictionRate, cfg.LargeClusterSizeThreshold, cfg.UnhealthyZoneThreshold = 100, 100, 100, 100
	return cfg
}

// threeNodes makes three nodes that count in no zone; the one in the middle has its own conditions.
func (w *world) threeNodes(middle []corev1.NodeCondition) (name string) {
	w.t.Helper()
	for i := range 3 {
		w.create(controlplane.Node(fmt.Sprintf("node-%d-%s", i, w.scope), func(n *corev1.Node) {
			n.Labels["node.kubernetes.io/exclude-disruption"] = "true"
			n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelTopologyZone] = "region1", "zone1"
			n.Status.Conditions = conditions("Ready", "True")
			if i == 1 {
				n.Status.Conditions = middle
			}
		}))
	}
	return "node-1-" + w.scope
}

func TestEvictionForNoExecuteTaintAddedByUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		eviction bool
	}{
		{"eviction controller runs beside", true}, // upstream's cases 1 and 3: inside the same process or not makes no difference here
		{"eviction controller does not run", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			controllers := []string{node.Name}
			if tt.eviction {
				controllers = append(controllers, tainteviction.Name)
			}
			w.start(shortGrace(), controllers...)
			name := w.threeNodes(conditions("Ready", "True"))
			pod := w.pods(name, 1)[0]
			controlplane.Eventually(t, patience, func(ctx context.Context) error {
				n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "CustomTaintByUser", Effect: corev1.TaintEffectNoExecute})
				_, err = w.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
				return err
			})
			check := func(ctx context.Context) error {
				p, err := w.client.CoreV1().Pods(w.ns).Get(ctx, pod, metav1.GetOptions{})
				if err != nil {
					return err
				}
				disrupted := caches.TrimPod(p).Disruption.Status == corev1.ConditionTrue
				if (p.DeletionTimestamp != nil) != tt.eviction || disrupted != tt.eviction {
					return fmt.Errorf("terminating %v, DisruptionTarget %v; want %v", p.DeletionTimestamp != nil, disrupted, tt.eviction)
				}
				return nil
			}
			if tt.eviction {
				controlplane.Eventually(t, patience, check)
			} else {
				controlplane.Consistently(t, 3*time.Second, check)
			}
		})
	}
}

func TestTaintBasedEvictions(t *testing.T) {
	t.Parallel()
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	tolerating := func(seconds int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{
				Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			}}
		}
	}
	// Upstream runs each case twice, with the eviction inside its lifecycle controller and beside it; here it is always beside.
	for _, tt := range []struct {
		name       string
		ready      string
		taint      corev1.Taint
		pod        func(*corev1.Pod) // nil: no pod
		toleration int64             // seconds that the pod's not-ready toleration has in the end; 0: the pod is evicted
	}{
		{"not ready, 200 s tolerated", "False", notReady, tolerating(200), 200},
		{"not ready, no toleration given", "False", notReady, func(*corev1.Pod) {}, 300},
		{"not ready, 0 s tolerated", "False", notReady, tolerating(0), 0},
		{"unreachable", "Unknown", unreachable, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := shortGrace()
			cfg.MonitorGracePeriod = time.Hour // upstream's is a millisecond: a second later a node that is not ready is unreachable
			w.start(cfg, node.Name, tainteviction.Name)
			name := w.threeNodes(conditions("Ready", tt.ready))
			if tt.pod != nil {
				w.pod("pod", name, tt.pod)
			}
			w.taints(name, tt.taint)
			if tt.pod == nil {
				return
			}
			controlplane.Eventually(t, 15*time.Second, func(ctx context.Context) error {
				pod, err := w.client.CoreV1().Pods(w.ns).Get(ctx, "pod", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if tt.toleration == 0 {
					if pod.DeletionTimestamp == nil {
						return fmt.Errorf("pod is not terminating")
					}
					return nil
				}
				for _, toleration := range pod.Spec.Tolerations {
					if toleration.Key == corev1.TaintNodeNotReady && *toleration.TolerationSeconds == tt.toleration {
						return nil
					}
				}
				return fmt.Errorf("tolerations are %v", pod.Spec.Tolerations)
			})
		})
	}
}

// podCase is a pod and whether the scheduler should find it a place.
type podCase struct {
	resources   string // besteffort, burstable or guaranteed
	tolerations []corev1.Toleration
	fits        bool
}

func TestTaintNodeByCondition(t *testing.T) {
	t.Parallel()
	startScheduler(t)
	tolerates := func(keys ...string) (all []corev1.Toleration) {
		for _, key := range keys {
			all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		}
		return all
	}
	compares := func(key string, op corev1.TolerationOperator, value string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: "node.example.com/" + key, Operator: op, Value: value, Effect: effect}
	}
	own := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: "node.example.com/" + key, Value: value, Effect: effect}
	}
	byCondition := func(keys ...string) (all []corev1.Taint) {
		for _, key := range keys {
			all = append(all, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return all
	}
	none := []podCase{{"besteffort", nil, false}, {"burstable", nil, false}, {"guaranteed", nil, false}}
	const (
		prefer = corev1.TaintEffectPreferNoSchedule
		no     = corev1.TaintEffectNoSchedule
		exec   = corev1.TaintEffectNoExecute
	)
	priority, errorRate := own("priority-class", "950", no), own("error-rate", "5", no)
	priorityGt, errorRateLt := compares("priority-class", corev1.TolerationOpGt, "900", no), compares("error-rate", corev1.TolerationOpLt, "10", no)
	cpu := own("cpu-utilization", "75", exec)
	preferred := own("priority-class", "950", prefer)

	for _, tt := range []struct {
		name          string
		existing      []corev1.Taint
		conditions    []corev1.NodeCondition
		unschedulable bool
		want          []corev1.Taint
		pods          []podCase
	}{
		{
			"not ready", nil, conditions("Ready", "False"), false, byCondition(corev1.TaintNodeNotReady),
			append(none, podCase{"besteffort", tolerates(corev1.TaintNodeNotReady), true}),
		},
		{
			"unschedulable", nil, conditions("Ready", "True"), true, byCondition(corev1.TaintNodeUnschedulable),
			append(none, podCase{"besteffort", tolerates(corev1.TaintNodeUnschedulable), true}),
		},
		{
			"memory pressure", nil, conditions("MemoryPressure", "True", "Ready", "True"), false, byCondition(corev1.TaintNodeMemoryPressure),
			[]podCase{ // admission lets all but the pods without requests tolerate memory pressure
				{"besteffort", nil, false}, {"besteffort", tolerates(corev1.TaintNodeMemoryPressure), true},
				{"besteffort", tolerates(corev1.TaintNodeDiskPressure), false}, {"burstable", nil, true}, {"guaranteed", nil, true},
			},
		},
		{
			"disk pressure", nil, conditions("DiskPressure", "True", "Ready", "True"), false, byCondition(corev1.TaintNodeDiskPressure),
			append(none, podCase{"besteffort", tolerates(corev1.TaintNodeDiskPressure), true}, podCase{"besteffort", tolerates(corev1.TaintNodeMemoryPressure), false}),
		},
		{
			"network unavailable, ready", nil, conditions("NetworkUnavailable", "True", "Ready", "True"), false, byCondition(corev1.TaintNodeNetworkUnavailable),
			append(none, podCase{"burstable", tolerates(corev1.TaintNodeNetworkUnavailable), true}),
		},
		{
			"network unavailable, not ready", nil, conditions("NetworkUnavailable", "True", "Ready", "False"), false,
			byCondition(corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeNotReady),
			append(none, podCase{"burstable", tolerates(corev1.TaintNodeNetworkUnavailable), false},
				podCase{"burstable", tolerates(corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeNotReady), true}),
		},
		{
			"PID pressure", nil, conditions("PIDPressure", "True", "Ready", "True"), false, byCondition(corev1.TaintNodePIDPressure),
			append(none, podCase{"besteffort", tolerates(corev1.TaintNodePIDPressure), true}),
		},
		{
			"three pressures", nil, conditions("PIDPressure", "True", "MemoryPressure", "True", "DiskPressure", "True", "Ready", "True"), false,
			byCondition(corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure), nil,
		},
		{
			"a number, more than", []corev1.Taint{priority}, conditions("Ready", "True"), false, []corev1.Taint{priority},
			[]podCase{{"besteffort", nil, false}, {"besteffort", []corev1.Toleration{priorityGt}, true}},
		},
		{
			"a number, less than", []corev1.Taint{errorRate}, conditions("Ready", "True"), false, []corev1.Taint{errorRate},
			[]podCase{{"burstable", nil, false}, {"burstable", []corev1.Toleration{errorRateLt}, true}},
		},
		{
			"two numbers", []corev1.Taint{priority, errorRate}, conditions("Ready", "True"), false, []corev1.Taint{priority, errorRate},
			[]podCase{{"guaranteed", nil, false}, {"guaranteed", []corev1.Toleration{priorityGt}, false}, {"guaranteed", []corev1.Toleration{priorityGt, errorRateLt}, true}},
		},
		{
			"a number, NoExecute", []corev1.Taint{cpu}, conditions("Ready", "True"), false, []corev1.Taint{cpu},
			[]podCase{
				{"guaranteed", nil, false}, {"guaranteed", []corev1.Toleration{compares("cpu-utilization", corev1.TolerationOpLt, "90", exec)}, true},
				{"guaranteed", []corev1.Toleration{compares("cpu-utilization", corev1.TolerationOpGt, "50", exec)}, true},
			},
		},
		{
			"a number, preferred", []corev1.Taint{preferred}, conditions("Ready", "True"), false, []corev1.Taint{preferred},
			[]podCase{{"besteffort", nil, true}, {"besteffort", []corev1.Toleration{compares("priority-class", corev1.TolerationOpGt, "900", prefer)}, true}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.start(longPeriod(), node.Name)
			resources := corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
			}
			name := "node-" + w.scope
			w.create(controlplane.Node(name, func(n *corev1.Node) {
				n.Spec.Unschedulable, n.Spec.Taints = tt.unschedulable, tt.existing
				n.Status = corev1.NodeStatus{Capacity: resources, Allocatable: resources, Conditions: tt.conditions}
			}))
			w.taints(name, tt.want...)
			// A Ready node loses the taint of its admission; the scheduler must have seen what it is left with.
			w.settled(name, len(tt.want))
			for i, p := range tt.pods {
				w.createFor(fmt.Sprint("pod-", i), p)
			}
			for i, p := range tt.pods {
				w.scheduled(fmt.Sprint("pod-", i), p.fits)
			}
		})
	}
}

// settled waits until a node has that many taints.
func (w *world) settled(name string, want int) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(n.Spec.Taints) != want {
			return fmt.Errorf("taints are %v, want %d", n.Spec.Taints, want)
		}
		return nil
	})
}

// createFor makes a pod for the scheduler, which may take only nodes of the test.
func (w *world) createFor(name string, p podCase) {
	w.t.Helper()
	w.pod(name, "", func(pod *corev1.Pod) {
		pod.Spec.SchedulerName, pod.Spec.NodeSelector = corev1.DefaultSchedulerName, map[string]string{controlplane.ScopeLabel: w.scope}
		pod.Spec.Tolerations = p.tolerations
		request := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("100Mi")}
		switch p.resources {
		case "burstable":
			pod.Spec.Containers[0].Resources.Requests = request
		case "guaranteed":
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: request, Limits: request}
		}
	})
}

// scheduled waits for the scheduler's answer about a pod.
func (w *world) scheduled(name string, fits bool) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := corev1.ConditionFalse
		if fits {
			want = corev1.ConditionTrue
		}
		if got := caches.TrimPod(pod).Scheduled.Status; got != want || (pod.Spec.NodeName != "") != fits {
			return fmt.Errorf("pod %s: PodScheduled %q on node %q, want %q", name, got, pod.Spec.NodeName, want)
		}
		return nil
	})
}

// startScheduler runs kube-scheduler until the test ends.
func startScheduler(t testing.TB) {
	t.Helper()
	program, err := controlplane.Binary("kube-scheduler")
	must(t, err)
	kubeconfig := cluster.Kubeconfig(t, "system:kube-scheduler")
	controlplane.StartProgram(t, program, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--feature-gates=TaintTolerationComparisonOperators=true")
}
