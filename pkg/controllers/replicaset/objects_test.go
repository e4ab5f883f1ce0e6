package replicaset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// now is the time of the unit tests.
var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// newSet returns a ReplicaSet with the UID set that selects app=web.
func newSet(replicas int32, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	app := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "set", ResourceVersion: "10", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
		},
	}
	for _, edit := range edits {
		edit(rs)
	}
	return rs
}

func mustSelect(rs *appsv1.ReplicaSet) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// newPod returns a running pod of the ReplicaSet of newSet. The UID equals the name.
func newPod(name string, edits ...func(*caches.Pod)) *caches.Pod {
	pod := &caches.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "5", Labels: map[string]string{"app": "web"},
			CreationTimestamp: ago(time.Hour),
			OwnerReferences:   []metav1.OwnerReference{*controllerRef(newSet(0))},
		},
		Phase: corev1.PodRunning,
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// apiPod returns a pod of the API server.
func apiPod(pod *caches.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{NodeName: pod.NodeName}, Status: corev1.PodStatus{Phase: pod.Phase}}
}

func podList(pods ...*caches.Pod) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}}
	for _, pod := range pods {
		list.Items = append(list.Items, *apiPod(pod))
	}
	return list
}

func phase(p corev1.PodPhase) func(*caches.Pod) { return func(pod *caches.Pod) { pod.Phase = p } }

func onNode(name string) func(*caches.Pod) { return func(pod *caches.Pod) { pod.NodeName = name } }

func labelled(l map[string]string) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Labels = l }
}

func createdAt(t metav1.Time) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.CreationTimestamp = t }
}

func version(v string) func(*caches.Pod) { return func(pod *caches.Pod) { pod.ResourceVersion = v } }

func readySince(t metav1.Time) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Ready = caches.Condition{Status: corev1.ConditionTrue, Since: t} }
}

func cost(value string) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: value} }
}

func deleting(pod *caches.Pod) { pod.DeletionTimestamp = new(ago(time.Second)) }

func orphaned(pod *caches.Pod) { pod.OwnerReferences = nil }

func ownedBy(uid types.UID) func(*caches.Pod) {
	return func(pod *caches.Pod) {
		other := newSet(0)
		other.UID = uid
		pod.OwnerReferences = []metav1.OwnerReference{*controllerRef(other)}
	}
}

func podNames(pods []*caches.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
