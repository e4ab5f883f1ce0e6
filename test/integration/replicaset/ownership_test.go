package replicaset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func refTo(rs *appsv1.ReplicaSet, controller bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: &controller}
}

// adoption is a pod that the ReplicaSet rs selects before the controller starts.
type adoption struct {
	name    string
	others  int32 // pods of another ReplicaSet with the same selector
	owners  func(rs, other *appsv1.ReplicaSet) []metav1.OwnerReference
	adopted bool

	n    *namespace
	rs   *appsv1.ReplicaSet
	want []metav1.OwnerReference
}

func prepareAdoptions(t *testing.T) []adoption {
	type refs = []metav1.OwnerReference
	all := []adoption{
		{name: "OwnerThatIsNoController", owners: func(rs, _ *appsv1.ReplicaSet) refs { return refs{refTo(rs, false)} }, adopted: true},
		{name: "NoOwner", owners: func(_, _ *appsv1.ReplicaSet) refs { return nil }, adopted: true},
		{name: "AlreadyOurs", owners: func(rs, _ *appsv1.ReplicaSet) refs { return refs{refTo(rs, true)} }},
		{name: "ControlledByAnother", others: 1, owners: func(rs, other *appsv1.ReplicaSet) refs { return refs{refTo(other, true), refTo(rs, false)} }},
	}
	for i := range all {
		a := &all[i]
		a.n = newNamespace(t)
		a.rs = a.n.apply(1)
		other := a.n.applyNamed("other", a.others, func(other *appsv1.ReplicaSet) {
			if a.others > 0 {
				other.Spec.Selector, other.Spec.Template.Labels = a.rs.Spec.Selector, a.rs.Spec.Template.Labels
			}
		})
		a.want = a.owners(a.rs, other)
		a.n.create(controlplane.Pod(a.n.name, "pod", map[string]string{"app": "rs"}, func(pod *corev1.Pod) { pod.OwnerReferences = a.want }))
		if a.adopted {
			ref := refTo(a.rs, true)
			ref.BlockOwnerDeletion = new(true)
			a.want = refs{ref}
		}
	}
	return all
}

func checkAdoptions(t *testing.T, all []adoption) {
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			n := &namespace{t: t, name: a.n.name, client: a.n.client}
			n.settled("rs")
			if got, want := len(n.pods()), 1+int(a.others); got != want {
				t.Errorf("%d pods, want %d", got, want)
			}
			pod, err := n.client.CoreV1().Pods(n.name).Get(t.Context(), "pod", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(pod.OwnerReferences, a.want) {
				t.Errorf("owner references are %v, want %v", pod.OwnerReferences, a.want)
			}
		})
	}
}
