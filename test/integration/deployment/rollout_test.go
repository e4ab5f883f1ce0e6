package deployment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

// TestANewDeploymentGetsAReplicaSetNamedAfterItsTemplate checks the name, labels, selector, owner and annotations that
// kubectl reads.
func TestANewDeploymentGetsAReplicaSetNamedAfterItsTemplate(t *testing.T) {
	n, _ := side(t)
	n.apply(20, annotate("team", "blue"), annotate("empty", ""), annotate("kubectl.kubernetes.io/last-applied-configuration", "{}"), minReady(0))
	d, s := n.complete()
	hash := s.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if hash == "" || s.Name != "web-"+hash || s.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != hash ||
		s.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash || s.Spec.Selector.MatchLabels["app"] != "web" || s.Labels["app"] != "web" {
		t.Errorf("ReplicaSet %s has labels %v, selector %v and makes pods labelled %v", s.Name, s.Labels, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels)
	}
	owner := metav1.GetControllerOf(s)
	if owner == nil || owner.UID != d.UID || owner.Kind != "Deployment" || owner.APIVersion != "apps/v1" || !ptr.Deref(owner.BlockOwnerDeletion, false) {
		t.Errorf("controller of the ReplicaSet is %+v", owner)
	}
	want := map[string]string{"team": "blue", "empty": "", revisionKey: "1", desiredKey: "20", maxKey: "25"}
	for key, value := range want {
		if got, ok := s.Annotations[key]; !ok || got != value {
			t.Errorf("annotation %s of the ReplicaSet is %q, want %q", key, got, value)
		}
	}
	if len(s.Annotations) != len(want) {
		t.Errorf("annotations of the ReplicaSet are %v, want %v", s.Annotations, want)
	}
	pods := n.pods()
	if len(pods) != 20 {
		t.Errorf("there are %d pods, want 20", len(pods))
	}
	for _, pod := range pods {
		if !strings.HasPrefix(pod.Name, s.Name+"-") || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash {
			t.Errorf("pod %s has labels %v", pod.Name, pod.Labels)
		}
	}
	if got, want := n.event("ScalingReplicaSet"), fmt.Sprintf("Scaled up replica set %s from 0 to 20", s.Name); got != want {
		t.Errorf("event says %q, want %q", got, want)
	}
}

// TestRollingUpdateKeepsItsBounds: no more replicas than with the surge, no fewer available pods than maxUnavailable
// allows.
func TestRollingUpdateKeepsItsBounds(t *testing.T) {
	t.Parallel()
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
			n, _ := side(t)
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

// TestRolloverAndRollback: templates change before a rollout has ended, and come back. Revisions rise, the ReplicaSet
// of a template that comes back is used again, and no bound is left.
func TestRolloverAndRollback(t *testing.T) {
	n, _ := side(t)
	d := n.apply(10, rolling("3", "2"))
	n.complete()
	o := n.observe(d, 8, 13)
	n.edit(image("v2"))
	n.complete()
	n.kubelet.Ready(tagged("v2"))
	n.edit(image("v3"))
	n.set("v3", 5)
	n.kubelet.Ready(controlplane.All)
	n.edit(image("v4"))
	_, fourth := n.complete()
	if got := fourth.Annotations[revisionKey]; got != "4" {
		t.Errorf("revision is %q, want 4", got)
	}
	n.edit(image("v2"))
	_, again := n.complete()
	if got, history := again.Annotations[revisionKey], again.Annotations["deployment.kubernetes.io/revision-history"]; got != "5" || history != "2" {
		t.Errorf("revision is %q with the history %q, want 5 and 2", got, history)
	}
	o.catchUp()
	if seen := o.seen(); seen != 4 {
		t.Errorf("there were %d ReplicaSets, want 4", seen)
	}
}

// TestTheEndOfARolloutIsTold checks the events of resizes and the conditions.
func TestTheEndOfARolloutIsTold(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	n, _ := side(t)
	n.apply(2)
	_, first := n.complete()
	n.edit(image("v2"))
	_, second := n.complete()
	progressing := n.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
	if want := fmt.Sprintf("ReplicaSet %q has successfully progressed.", second.Name); progressing.Message != want {
		t.Errorf("Progressing says %q, want %q", progressing.Message, want)
	}
	available := n.condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")
	if want := "Deployment has minimum availability."; available.Message != want {
		t.Errorf("Available says %q, want %q", available.Message, want)
	}
	n.eventually(func(ctx context.Context) error {
		list, err := n.client.CoreV1().Events(n.name).List(ctx, metav1.ListOptions{FieldSelector: "reason=ScalingReplicaSet"})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range list.Items {
			got = append(got, e.Message)
			if e.Source.Component != agent || e.Type != corev1.EventTypeNormal {
				t.Fatalf("event %q is from %s and of type %s", e.Message, e.Source.Component, e.Type)
			}
		}
		for _, want := range []string{
			fmt.Sprintf("Scaled up replica set %s from 0 to 2", first.Name),
			fmt.Sprintf("Scaled up replica set %s from 0 to 1", second.Name),
			fmt.Sprintf("Scaled up replica set %s from 1 to 2", second.Name),
			fmt.Sprintf("Scaled down replica set %s from 1 to 0", first.Name),
		} {
			if !slices.Contains(got, want) {
				return fmt.Errorf("no event %q in %q", want, got)
			}
		}
		return nil
	})
}

// TestRecreateNeverRunsOldBesideNew: new pods start when the last old one is gone, not when it is terminating.
func TestRecreateNeverRunsOldBesideNew(t *testing.T) {
	n, _ := side(t)
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
