package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	if conflicts := n.requests(m, nil, nil, 409); len(conflicts) > 0 {
		t.Errorf("%d conflicts in %d requests, the first of %s %s/%s", len(conflicts), len(n.requests(m, nil, nil, 0)),
			conflicts[0].Verb, conflicts[0].Resource, conflicts[0].Name)
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
		{"available a second after ready", 2, minReady(1)},
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
			controlplane.Consistently(t, time.Second, func(context.Context) error {
				o.lock.Lock()
				defer o.lock.Unlock()
				if o.violation != "" {
					return errors.New(o.violation)
				}
				return nil
			})
			held.Remove()
			gate.Open()
			o.complete()
		})
	}
}

// testLostAnswers: with lost responses, sizes keep to their bounds and each template has one ReplicaSet.
func testLostAnswers(t *testing.T, m *manager) {
	for _, tt := range []struct {
		name            string
		verbs, resource string
		fault           faults.Fault
		next            int
	}{
		{"of creates", "create", "replicasets", faults.DropAnswer(), 2},
		{"of resizes", "update,patch", "replicasets", faults.DropAnswer(), 5},
		{"of statuses", "update,patch", "deployments/status", faults.DropAnswer(), 5},
		{"of deletes", "delete", "replicasets", faults.DropAnswer(), 2},
		{"of creates that come late", "create", "replicasets", faults.LateCommit(0, 700*time.Millisecond), 2},
		{"of resizes that come late", "update,patch", "replicasets", faults.LateCommit(0, 700*time.Millisecond), 3},
		{"of everything", faults.Writes, "replicasets,deployments/status", faults.DropAnswer(), 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			d := n.apply(4, rolling("2", "1"), history(1))
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
			n.atMost(2)
			if rule.Hits() == 0 {
				t.Error("no answer was lost")
			}
			t.Logf("%d answers were lost", rule.Hits())
		})
	}
}

// testRefusedWrites: the rollout continues after rejected writes. Upstream does not retry the last resize.
func testRefusedWrites(t *testing.T, m *manager) {
	for _, tt := range []struct {
		verbs, resource string
		code, times     int
	}{
		{"create", "replicasets", 500, 4}, {"create", "replicasets", 403, 2}, {"create", "replicasets", 429, 2},
		{"update,patch", "replicasets", 500, 4}, {"update,patch", "replicasets", 403, 4}, {"update,patch", "replicasets", 429, 4},
		{"update,patch", "deployments/status", 500, 4}, {"update,patch", "deployments/status", 403, 4}, {"update,patch", "deployments/status", 429, 4},
	} {
		t.Run(fmt.Sprintf("%s %s %d", tt.verbs, strings.ReplaceAll(tt.resource, "/", " "), tt.code), func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			d := n.apply(3, rolling("1", "1"))
			n.complete()
			o := n.observe(d, 2, 4)
			rule := m.proxy.Inject(n.on(tt.verbs, tt.resource), faults.Refuse(tt.code), faults.Next(tt.times))
			n.edit(image("v2"))
			o.complete()
			if rule.Hits() != tt.times {
				t.Errorf("%d requests were refused, want %d", rule.Hits(), tt.times)
			}
		})
	}
}

// testRefusedScaleDownIsTold: a webhook rejects the scale-down of the old ReplicaSet. Upstream reports nothing.
func testRefusedScaleDownIsTold(t *testing.T, _ *manager) {
	n := newNamespace(t)
	d := n.apply(2, rolling("1", "0"))
	_, old := n.complete()
	o := n.observe(d, 2, 3)
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"UPDATE"}, APIGroup: "apps", Resource: "replicasets", Namespace: n.name, Name: old.Name})
	hook.Deny("hands off")
	n.edit(image("v2"))
	if got := n.event("FailedScaleReplicaSet"); !strings.Contains(got, "hands off") || !strings.Contains(got, old.Name) {
		t.Errorf("event says %q, want the ReplicaSet and what the webhook said", got)
	}
	hook.Heal()
	o.complete()
}

// atMost waits until there are no more ReplicaSets than that.
func (n *namespace) atMost(want int) {
	n.t.Helper()
	n.eventually(func(context.Context) error {
		if _, sets := n.owned(); len(sets) > want {
			return fmt.Errorf("ReplicaSets are %v, want %d at the most", names(sets), want)
		}
		return nil
	})
}
