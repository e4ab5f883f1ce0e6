package deployment

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// testUndisturbedWorkMeetsNoConflict requires no 409 without other writers. Upstream conflicts with its own writes.
func testUndisturbedWorkMeetsNoConflict(t *testing.T, m *manager) {
	n := newNamespace(t)
	n.apply(3, rolling("1", "1"))
	n.complete()
	for i := range 3 {
		n.edit(image(fmt.Sprintf("v%d", i+2)))
		n.complete()
		n.edit(image(fmt.Sprintf("v%d", i+1)), paused(true))
		n.observed()
		n.edit(paused(false))
		n.complete()
		n.edit(replicas(int32(2 + i%4)))
		n.complete()
	}
	for _, r := range n.requests(m) {
		if r.Code == 409 {
			t.Errorf("%s %s/%s met a conflict", r.Verb, r.Resource, r.Name)
		}
	}
}

// testTurnedRoundRolloutKeepsItsPromise returns to the old template while the status of the old ReplicaSet still
// counts pods that are gone. Upstream then deletes the last available pods.
func testTurnedRoundRolloutKeepsItsPromise(t *testing.T, m *manager) {
	for _, tt := range []struct {
		name string
		size int32
		edit func(*appsv1.Deployment)
	}{
		{"two replicas", 2, func(*appsv1.Deployment) {}},
		{"five replicas", 5, func(*appsv1.Deployment) {}},
		{"available a second after ready", 2, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			d := n.apply(tt.size, rolling("1", "1"), tt.edit)
			_, old := n.complete()
			o := n.observe(d, int(tt.size)-1, int(tt.size)+1)
			match := faults.Match{Verbs: "update,patch", Resource: "replicasets/status", Namespace: n.name, Name: old.Name}
			n.kubelet.Ready(tagged("v1"))
			n.edit(image("v2"))
			n.set("v2", 2)
			n.set("v1", tt.size-1)
			n.status(func(s appsv1.DeploymentStatus) bool {
				return s.Replicas == tt.size+1 && s.AvailableReplicas == tt.size-1
			})
			gate := faults.NewGate()
			held := m.proxy.Inject(match, faults.Hold(gate))
			n.kubelet.Ready(controlplane.All)
			n.eventually(func(ctx context.Context) error {
				now, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, old.Name, metav1.GetOptions{})
				if err == nil && (*now.Spec.Replicas >= tt.size-1 || now.Status.ObservedGeneration >= now.Generation) {
					err = fmt.Errorf("the old ReplicaSet asks for %d pods, its status is %+v", *now.Spec.Replicas, now.Status)
				}
				return err
			})
			n.edit(image("v1"))
			n.shown()
			controlplane.Consistently(t, time.Second, func(context.Context) error { return o.Err() })
			held.Remove()
			gate.Open()
			o.complete()
		})
	}
}

// testFailedWrites: with lost responses, late commits and rejected writes, sizes keep to their bounds, each template
// has one ReplicaSet, and rollouts continue. Upstream does not retry the last resize.
func testFailedWrites(t *testing.T, m *manager) {
	late := faults.LateCommit(700 * time.Millisecond)
	for _, tt := range []struct {
		name            string
		verbs, resource string
		fault           faults.Fault
		next, least     int // writes with the fault
	}{
		{"lost creates", "create", "replicasets", faults.DropAnswer(), 2, 1},
		{"lost resizes", "update,patch", "replicasets", faults.DropAnswer(), 5, 1},
		{"lost statuses", "update,patch", "deployments/status", faults.DropAnswer(), 5, 1},
		{"lost deletes", "delete", "replicasets", faults.DropAnswer(), 2, 1},
		{"late creates", "create", "replicasets", late, 2, 1},
		{"late resizes", "update,patch", "replicasets", late, 3, 1},
		{"anything lost", faults.Writes, "replicasets,deployments/status", faults.DropAnswer(), 1000, 1},
		{"creates with 500", "create", "replicasets", faults.Refuse(500), 4, 4},
		{"creates with 403", "create", "replicasets", faults.Refuse(403), 2, 2},
		{"resizes with 500", "update,patch", "replicasets", faults.Refuse(500), 4, 4},
		{"resizes with 403", "update,patch", "replicasets", faults.Refuse(403), 4, 4},
		{"statuses with 500", "update,patch", "deployments/status", faults.Refuse(500), 4, 4},
		{"statuses with 403", "update,patch", "deployments/status", faults.Refuse(403), 4, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			d := n.apply(4, rolling("2", "1"), func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32(1)) })
			n.complete()
			o := n.observe(d, 3, 6)
			options := []faults.RuleOption{faults.Next(tt.next)}
			if tt.next == 1000 {
				options = append(options, faults.Chance(0.3))
			}
			rule := m.proxy.Inject(n.on(tt.verbs, tt.resource), tt.fault, options...)
			for _, tag := range []string{"v2", "v3", "v2"} {
				n.edit(image(tag))
				o.complete()
				o.bounds(3, 6)
			}
			n.eventually(func(ctx context.Context) error {
				sets, err := n.sets(ctx, d)
				if len(sets) > 2 {
					err = fmt.Errorf("there are %d ReplicaSets, want 2 at the most", len(sets))
				}
				return err
			})
			if rule.Hits() < tt.least {
				t.Errorf("%d writes met the fault, want %d", rule.Hits(), tt.least)
			}
		})
	}
}
