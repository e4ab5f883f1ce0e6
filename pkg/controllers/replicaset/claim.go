package replicaset

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

const kind = "ReplicaSet"

// claims says what the pods of a namespace are to a ReplicaSet.
type claims struct {
	mine        []*caches.Pod // active, ours and selected
	adopt       []*caches.Pod // active, nobody's and selected
	release     []*caches.Pod // active and ours, no longer selected
	failed      []*caches.Pod // ours and failed
	terminating int           // ours, selected and being deleted
}

// claim sorts pods. Pods of others, and finished or terminating pods that are nobody's, are nothing to the ReplicaSet. gone holds pods that
// were deleted though they may look active: those that stop gracefully count as terminating, the others not at all. A ReplicaSet that is
// being deleted neither adopts nor releases.
func claim(rs *appsv1.ReplicaSet, selector labels.Selector, pods []*caches.Pod, gone map[types.UID]struct{}) claims {
	var c claims
	for _, pod := range pods {
		owner := pod.ControllerUID()
		selected := selector.Matches(labels.Set(pod.Labels))
		_, deleted := gone[pod.UID]
		switch {
		case pod.Namespace != rs.Namespace || owner != "" && owner != rs.UID:
		case owner == rs.UID && pod.Phase == "Failed":
			c.failed = append(c.failed, pod)
		case pod.IsFinished():
		case owner == "":
			if selected && rs.DeletionTimestamp == nil && pod.DeletionTimestamp == nil && !deleted {
				c.adopt = append(c.adopt, pod)
			}
		case pod.DeletionTimestamp != nil || deleted:
			if selected && (pod.DeletionTimestamp != nil || lingers(pod)) {
				c.terminating++
			}
		case selected:
			c.mine = append(c.mine, pod)
		case rs.DeletionTimestamp == nil:
			c.release = append(c.release, pod)
		}
	}
	return c
}

// lingers reports whether a pod stays for a while after its deletion: a kubelet stops it first, or somebody holds a finalizer.
func lingers(pod *caches.Pod) bool { return pod.NodeName != "" || len(pod.Finalizers) > 0 }

// controllerRef is the owner reference of our pods.
func controllerRef(rs *appsv1.ReplicaSet) *metav1.OwnerReference {
	return metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind(kind))
}

// ownerPatch is a strategic merge patch of one owner reference. The pod's UID in it makes the API server refuse the patch if
// another pod has the name by now.
type ownerPatch struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		OwnerReferences []any     `json:"ownerReferences"`
	} `json:"metadata"`
}

// adoptPatch makes rs the controller of the pod. References to others stay; one to us that is no controller reference becomes one.
func adoptPatch(rs *appsv1.ReplicaSet, pod types.UID) ([]byte, error) {
	return marshalPatch(pod, controllerRef(rs))
}

// releasePatch removes the reference to rs.
func releasePatch(rs *appsv1.ReplicaSet, pod types.UID) ([]byte, error) {
	return marshalPatch(pod, struct {
		Patch string    `json:"$patch"`
		UID   types.UID `json:"uid"`
	}{"delete", rs.UID})
}

func marshalPatch(pod types.UID, ref any) ([]byte, error) {
	var p ownerPatch
	p.Metadata.UID, p.Metadata.OwnerReferences = pod, []any{ref}
	return json.Marshal(p)
}
