package deployment

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// testRollingUpdateKeepsItsBounds: no more replicas than with the surge, no fewer available pods than maxUnavailable
// allows.
func testRollingUpdateKeepsItsBounds(t *testing.T, _ *manager) {
	for _, tt := range []struct {
		surge, unavailable string
		replicas           int32
		least, most        int
	}{
		{"25%", "25%", 10, 8, 13},
		{"1", "0", 4, 4, 5},
		{"0", "1", 4, 3, 4},
		{"0%", "10%", 4, 3, 4},
		{"100%", "100%", 3, 0, 6},
		{"3", "2", 5, 3, 8},
	} {
		t.Run(tt.surge+" and "+tt.unavailable, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			d := n.apply(tt.replicas, rolling(tt.surge, tt.unavailable))
			n.complete()
			o := n.observe(d, tt.least, tt.most)
			n.edit(image("v2"))
			_, s := o.n.complete()
			if got := s.Annotations[revisionKey]; got != "2" {
				t.Errorf("revision is %q, want 2", got)
			}
			if _, highest := o.extremes(); highest > tt.most || tt.surge != "0" && tt.surge != "0%" && highest <= int(tt.replicas) {
				t.Errorf("sizes added up to %d at the most, want more than %d and no more than %d", highest, tt.replicas, tt.most)
			}
		})
	}
}

// testRecreateNeverRunsOldBesideNew: new pods start when the last old one is gone, not when it is terminating.
func testRecreateNeverRunsOldBesideNew(t *testing.T, _ *manager) {
	n := newNamespace(t)
	// So that pods take time to end.
	onNode := func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "somewhere" }
	d := n.apply(4, recreate, onNode)
	_, first := n.complete()
	n.kubelet.Gone(controlplane.None)
	o := n.observe(d, 0, 4)
	o.exclusive = true
	n.edit(image("v2"))
	n.eventually(func(context.Context) error {
		ending := slices.DeleteFunc(n.pods(), func(p corev1.Pod) bool { return p.DeletionTimestamp == nil })
		if len(ending) != 4 {
			return fmt.Errorf("%d pods are ending, want 4", len(ending))
		}
		return nil
	})
	n.status(func(s appsv1.DeploymentStatus) bool { return s.Replicas == 0 && s.UpdatedReplicas == 0 })
	last := n.pods()[0].Name
	n.kubelet.Gone(func(p *corev1.Pod) bool { return p.Name != last })
	n.eventually(func(context.Context) error {
		if pods := n.pods(); len(pods) != 1 {
			return fmt.Errorf("%d pods are left, want one", len(pods))
		}
		return nil
	})
	if _, sets := n.owned(); len(sets) != 1 || sets[0].UID != first.UID {
		t.Errorf("with an old pod left, there are ReplicaSets %v", names(sets))
	}
	n.kubelet.Gone(controlplane.All)
	_, second := n.complete()
	for _, pod := range n.pods() {
		if !metav1.IsControlledBy(&pod, second) {
			t.Errorf("pod %s is not of the new ReplicaSet", pod.Name)
		}
	}
	o.catchUp()
}

func (n *namespace) owned() (*appsv1.Deployment, []appsv1.ReplicaSet) {
	n.t.Helper()
	d := n.get()
	sets, err := n.sets(n.t.Context(), d)
	if err != nil {
		n.t.Fatal(err)
	}
	return d, sets
}

func names(sets []appsv1.ReplicaSet) []string {
	var all []string
	for i := range sets {
		all = append(all, fmt.Sprintf("%s of %d at revision %s", sets[i].Name, *sets[i].Spec.Replicas, sets[i].Annotations[revisionKey]))
	}
	return all
}
