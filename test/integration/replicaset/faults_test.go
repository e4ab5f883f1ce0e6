package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// lag of the pod watch, so that the cache cannot replace a lost response.
const lag = 700 * time.Millisecond

type faulty struct {
	*loop
	requests, watches *faults.Proxy
}

func startFaulty(t testing.TB) *faulty {
	t.Helper()
	f := &faulty{
		requests: faults.New(t, controllerConfig(), faults.WithName("requests")),
		watches:  faults.New(t, controllerConfig(), faults.WithName("watches")),
	}
	f.loop = standby(t, defaults(), f.requests.Config(), f.watches.Config(), clock.RealClock{}).beginTerm()
	return f
}

func on(n *namespace, verbs string) faults.Match {
	return faults.Match{Verbs: verbs, Resource: "pods", Namespace: n.name}
}

// TestLostAnswers: with lost responses and a late pod watch there are never surplus pods, and the controller never
// deletes below the bound.
func TestLostAnswers(t *testing.T) {
	f := startFaulty(t)
	f.watches.SlowWatches(faults.Watches("pods"), lag)
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *faulty)
	}{
		{"Create", testLostCreate},
		{"Delete", testLostDelete},
		{"LostDeleteThenOrderChanges", testLostDeleteThenOrderChanges},
		{"Adopt", testLostAdopt},
		{"Release", testLostRelease},
		{"LateCreate", testLateCreate},
		{"LateDelete", testLateDelete},
		{"RecreatedMidFlight", testRecreatedMidFlight},
		{"Storm", testStorm},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, f)
		})
	}
}

func testLostCreate(t *testing.T, f *faulty) {
	n := newNamespace(t)
	rule := f.requests.Inject(on(n, "create"), faults.DropAnswer(), faults.Next(3))
	rs := n.apply(5)
	o := n.observe(rs, 0, 5)
	o.settledAt(5)
	if rule.Hits() != 3 || o.seen() != 5 {
		t.Errorf("%d answers were lost and %d pods made, want 3 and 5", rule.Hits(), o.seen())
	}
}

func testLostDelete(t *testing.T, f *faulty) {
	n := newNamespace(t)
	rs := n.apply(6)
	o := n.observe(rs, 0, 6)
	o.settledAt(6)
	rule := f.requests.Inject(on(n, "delete"), faults.DropAnswer(), faults.Next(4))
	o.bounds(3, 6)
	n.scale("rs", 3)
	o.settledAt(3)
	if rule.Hits() != 4 || o.seen() != 6 {
		t.Errorf("%d answers were lost and %d pods seen, want 4 and 6", rule.Hits(), o.seen())
	}
}

func testLostDeleteThenOrderChanges(t *testing.T, f *faulty) {
	n := newNamespace(t)
	rs := n.apply(4)
	o := n.observe(rs, 0, 4)
	o.settledAt(4)
	names := n.active(rs)
	cheap, broken := names[0], names[1]
	n.editPod(cheap, func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: "-10"} })
	for _, name := range names {
		setReady(t, n, name, time.Now().Add(-time.Hour))
	}
	n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return s.ReadyReplicas == 4 })
	match := on(n, "delete")
	match.Name = cheap
	defer f.requests.Inject(match, faults.DropAnswer()).Remove()
	o.bounds(3, 4)
	controlplane.SetPodStatus(t, n.client, n.name, broken, func(s *corev1.PodStatus) { s.Conditions = nil })
	n.scale("rs", 3)
	o.settledAt(3)
	if left := n.active(rs); slices.Contains(left, cheap) || !slices.Contains(left, broken) {
		t.Errorf("left are %v, want all but %s", left, cheap)
	}
}

func testLostAdopt(t *testing.T, f *faulty) {
	n := newNamespace(t)
	for i := range 3 {
		n.create(controlplane.Pod(n.name, fmt.Sprintf("pod-%d", i), map[string]string{"app": "rs"}))
	}
	n.shown()
	rule := f.requests.Inject(on(n, "patch"), faults.DropAnswer(), faults.Next(4))
	rs := n.apply(3)
	o := n.observe(rs, 0, 3)
	o.settledAt(3)
	if rule.Hits() == 0 {
		t.Errorf("no answer was lost")
	}
}

func testLostRelease(t *testing.T, f *faulty) {
	n := newNamespace(t)
	rs := n.apply(2)
	o := n.observe(rs, 0, 2)
	o.settledAt(2)
	rule := f.requests.Inject(on(n, "patch"), faults.DropAnswer(), faults.Next(2))
	o.bounds(1, 2)
	name := n.active(rs)[0]
	n.editPod(name, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "loose"} })
	n.eventually(func(ctx context.Context) error {
		pod, err := n.client.CoreV1().Pods(n.name).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(pod.OwnerReferences) > 0 {
			err = fmt.Errorf("owners are %v", pod.OwnerReferences)
		}
		return err
	})
	o.settledAt(2)
	if rule.Hits() != 2 || o.seen() != 3 {
		t.Errorf("%d answers were lost and %d pods seen, want 2 and 3", rule.Hits(), o.seen())
	}
}

func testLateCreate(t *testing.T, f *faulty) {
	n := newNamespace(t)
	gate := faults.NewGate()
	f.requests.Inject(on(n, "create"), faults.Hold(gate), faults.Next(2))
	rs := n.apply(3)
	o := n.observe(rs, 0, 3)
	first := gate.Next(t)
	first.Abandon()
	second := gate.Next(t) // the repetition
	second.Abandon()
	o.settledAt(3)
	first.Release()
	second.Release()
	n.eventually(func(context.Context) error {
		if got := f.countIn(n, "create", 409); got != 2 {
			return fmt.Errorf("%d creates met an existing pod, want the two late ones", got)
		}
		return nil
	})
	if o.seen() != 3 {
		t.Errorf("%d pods were made, want 3", o.seen())
	}
}

func (f *faulty) countIn(n *namespace, verb string, code int) int {
	sum := 0
	for _, r := range f.requests.Requests() {
		if r.Namespace == n.name && r.Resource == "pods" && r.Verb == verb && r.Code == code {
			sum++
		}
	}
	return sum
}

// testLateDelete: as testLateCreate, with a delete.
func testLateDelete(t *testing.T, f *faulty) {
	n := newNamespace(t)
	rs := n.apply(4)
	o := n.observe(rs, 0, 4)
	o.settledAt(4)
	gate := faults.NewGate()
	f.requests.Inject(on(n, "delete"), faults.Hold(gate), faults.Next(2))
	o.bounds(3, 4)
	n.scale("rs", 3)
	first := gate.Next(t)
	first.Abandon()
	second := gate.Next(t)
	second.Abandon()
	o.settledAt(3)
	first.Release()
	second.Release()
	n.eventually(func(context.Context) error {
		if got := f.countIn(n, "delete", 404); got != 2 {
			return fmt.Errorf("%d deletes met no pod, want the two late ones", got)
		}
		return nil
	})
	if first.Request.Name != second.Request.Name {
		t.Errorf("%s was deleted while the delete of %s was not answered", second.Request.Name, first.Request.Name)
	}
}

func testRecreatedMidFlight(t *testing.T, f *faulty) {
	n := newNamespace(t)
	gate := faults.NewGate()
	f.requests.Inject(on(n, "create"), faults.HoldAnswer(gate), faults.Next(1))
	n.apply(3)
	held := gate.Next(t)
	background := metav1.DeletePropagationBackground
	if err := n.client.AppsV1().ReplicaSets(n.name).Delete(t.Context(), "rs", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	rs := n.apply(2)
	o := n.observe(rs, 0, 2)
	held.Cut()
	o.settledAt(2)
}

func testStorm(t *testing.T, f *faulty) {
	n := newNamespace(t)
	rule := f.requests.Inject(on(n, faults.Writes), faults.DropAnswer(), faults.Chance(0.25))
	status := f.requests.Inject(faults.Match{Verbs: "update", Resource: "replicasets/status", Namespace: n.name}, faults.DropAnswer(), faults.Chance(0.25))
	rs := n.apply(12)
	o := n.observe(rs, 0, 12)
	o.settledAt(12)
	for _, step := range []struct{ from, to int }{{12, 5}, {5, 15}, {15, 2}, {2, 9}} {
		o.bounds(min(step.from, step.to), max(step.from, step.to))
		n.scale("rs", int32(step.to))
		o.settledAt(step.to)
	}
	t.Logf("%d answers about pods and %d about status were lost", rule.Hits(), status.Hits())
}
