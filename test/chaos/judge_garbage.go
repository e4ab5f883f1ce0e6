package main

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// collectorAgent is the end of the garbage collector's user agent.
const collectorAgent = "generic-garbage-collector"

func setOf(pod *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind == "ReplicaSet" {
		return ref
	}
	return nil
}

// judgeCollections checks that the garbage collector deletes no object with a live owner and no orphan.
func (j *judge) judgeCollections() {
	owners := byUID(j.histories.replicaSets, j.histories.deployments)
	for _, h := range []*history{j.histories.pods, j.histories.replicaSets} {
		for _, changes := range byUID(h) {
			n := slices.IndexFunc(changes, func(c change) bool { return c.deleted || c.object.GetDeletionTimestamp() != nil })
			if n < 1 || changes[n].missed || !j.collected(h.resource, changes[n]) {
				continue
			}
			// The API server has compared versions, so the decision was made on the references of the state before.
			if text := wronglyCollected(changes[n-1].object.GetOwnerReferences(), owners, changes[n].version); text != "" {
				o := changes[n].object
				j.violateAt(keyOf(o), changes[n].at, fmt.Sprintf("%s %s was deleted by the garbage collector (version %d): %s", h.resource, keyOf(o), changes[n].version, text))
			}
		}
	}
}

func byUID(histories ...*history) map[types.UID][]change {
	all := map[types.UID][]change{}
	for _, h := range histories {
		for _, c := range h.all() {
			all[c.object.GetUID()] = append(all[c.object.GetUID()], c)
		}
	}
	return all
}

func (j *judge) collected(resource string, c change) bool {
	var first *auditv1.Event
	for _, e := range j.deletes[resource+" "+keyOf(c.object)] {
		received := e.RequestReceivedTimestamp.Time
		if received.Before(c.at.Add(-longestWrite)) || received.After(c.at.Add(time.Second)) {
			continue
		}
		if first == nil || e.StageTimestamp.Time.Before(first.StageTimestamp.Time) {
			first = &e
		}
	}
	return first != nil && by(collectorAgent)(first)
}

func wronglyCollected(refs []metav1.OwnerReference, owners map[types.UID][]change, version int64) string {
	for _, ref := range refs {
		var last, before *change
		for _, c := range owners[ref.UID] {
			if c.version >= version {
				break
			}
			if !c.deleted {
				before = &c
			}
			last = &c
		}
		switch {
		case last == nil:
		case !last.deleted && !waits(last.object):
			return fmt.Sprintf("its owner %s %s lived", ref.Kind, ref.Name)
		case last.deleted && before != nil && slices.Contains(before.object.GetFinalizers(), metav1.FinalizerOrphanDependents):
			return fmt.Sprintf("its owner %s %s was deleted to leave it behind", ref.Kind, ref.Name)
		}
	}
	return ""
}

func waits(o metav1.Object) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

func judgeGarbage(pods []corev1.Pod, sets []appsv1.ReplicaSet, deployments []appsv1.Deployment) (wrong []violation) {
	var objects []metav1.Object
	there := map[types.UID]bool{}
	for i := range pods {
		objects = append(objects, &pods[i])
	}
	for i := range sets {
		objects, there[sets[i].UID] = append(objects, &sets[i]), true
	}
	for i := range deployments {
		objects, there[deployments[i].UID] = append(objects, &deployments[i]), true
	}
	referring, blocking := map[types.UID]bool{}, map[types.UID]bool{}
	for _, o := range objects {
		dangling := 0
		for _, ref := range o.GetOwnerReferences() {
			referring[ref.UID] = true
			if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				blocking[ref.UID] = true
			}
			if (ref.Kind == "ReplicaSet" || ref.Kind == "Deployment") && !there[ref.UID] {
				dangling++
			}
		}
		if dangling > 0 && dangling == len(o.GetOwnerReferences()) && o.GetDeletionTimestamp() == nil {
			wrong = append(wrong, violation{keyOf(o), fmt.Sprintf("%s was not deleted, though its owners are gone", o.GetName())})
		}
	}
	for _, o := range objects {
		switch {
		case o.GetDeletionTimestamp() == nil:
		case waits(o) && !blocking[o.GetUID()], slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents):
			wrong = append(wrong, violation{keyOf(o), fmt.Sprintf("%s is being deleted, and nothing holds it but its finalizers %v (referred to: %v)", o.GetName(), o.GetFinalizers(), referring[o.GetUID()])})
		}
	}
	return wrong
}
