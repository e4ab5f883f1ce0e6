package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

type tally struct {
	specs  []appsv1.ReplicaSet
	at     []time.Time
	active map[types.UID]bool
}

func (t *tally) wanted(since time.Time) (least, most int) {
	least, most = 1<<30, 0
	for i := range t.specs {
		if i+1 < len(t.at) && t.at[i+1].Before(since) {
			continue
		}
		n := int(*t.specs[i].Spec.Replicas)
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// judgeCounts replays the history of the pods: a create must not make an excess pod, and a delete by the ReplicaSet
// controller must not leave too few.
func (j *judge) judgeCounts() {
	tallies := j.tallies()
	deletes := map[string][]time.Time{} // that have not been seen to take effect
	for _, e := range j.audit.Select(by("replicaset-controller"), controlplane.ByResource("pods"), controlplane.ByVerb("delete")) {
		key := e.ObjectRef.Namespace + "/" + e.ObjectRef.Name
		deletes[key] = append(deletes[key], e.RequestReceivedTimestamp.Time)
		if strings.HasPrefix(e.ObjectRef.Name, "foreign-") {
			j.violateAt(e.ObjectRef.Namespace+"/"+e.ObjectRef.Name, e.StageTimestamp.Time, "pod of another controller deleted by "+e.User.Username)
		}
	}
	owners := map[types.UID]types.UID{}
	known := map[types.UID]bool{}
	names := map[string]bool{}
	for _, c := range j.histories.pods.all() {
		pod := c.object.(*corev1.Pod)
		counts := active(pod) && !c.deleted
		was := owners[pod.UID]
		var now types.UID
		if ref := setOf(pod); ref != nil && counts {
			now = ref.UID
		}
		if t := tallies[was]; t != nil && was != now {
			if (pod.DeletionTimestamp != nil || c.deleted) && tookEffect(deletes, keyOf(pod), c.at) {
				j.judgeDelete(t, pod, c)
			}
			delete(t.active, pod.UID)
		}
		if t := tallies[now]; t != nil && was != now {
			t.active[pod.UID] = true
			if !known[pod.UID] && !c.missed && !(names[keyOf(pod)] && j.delivered(c.at)) {
				j.judgeCreate(t, pod, c)
			}
		}
		owners[pod.UID] = now
		known[pod.UID], names[keyOf(pod)] = true, true
	}
}

// tookEffect reports whether a change is the effect of a delete. A delete has a single effect: a later pod may have
// the same name.
func tookEffect(deletes map[string][]time.Time, key string, seen time.Time) bool {
	i := slices.IndexFunc(deletes[key], func(at time.Time) bool { return at.Before(seen) && seen.Sub(at) < 10*time.Second })
	if i < 0 {
		return false
	}
	deletes[key] = slices.Delete(deletes[key], i, i+1)
	return true
}

func (j *judge) tallies() map[types.UID]*tally {
	tallies := map[types.UID]*tally{}
	for _, c := range j.histories.replicaSets.all() {
		rs := c.object.(*appsv1.ReplicaSet)
		t := tallies[rs.UID]
		if t == nil {
			t = &tally{active: map[types.UID]bool{}}
			tallies[rs.UID] = t
		}
		if n := len(t.specs); n == 0 || *t.specs[n-1].Spec.Replicas != *rs.Spec.Replicas {
			t.specs, t.at = append(t.specs, *rs), append(t.at, c.at)
		}
	}
	return tallies
}

func (j *judge) judgeCreate(t *tally, pod *corev1.Pod, c change) {
	_, most := t.wanted(c.at.Add(-recently))
	if len(t.active) <= most || pod.Namespace != steady && j.gifts(pod, c.at) {
		return
	}
	j.violateAt(pod.Namespace+"/"+setOf(pod).Name, c.at, fmt.Sprintf("pod %s created (version %d): %d active pods, at most %d were ever asked for since %v before",
		pod.Name, c.version, len(t.active), most, recently))
}

// delivered reports whether a create that was held while a manager was cut off may have arrived just then. The API
// server cannot distinguish the create from a new create if the pod of the repetition is gone.
func (j *judge) delivered(at time.Time) bool {
	return slices.ContainsFunc(j.slots, func(s *slot) bool { return j.undelivered(s.name, at) })
}

func (j *judge) judgeDelete(t *tally, pod *corev1.Pod, c change) {
	least, _ := t.wanted(c.at.Add(-recently))
	if len(t.active) > least || pod.Namespace != steady && j.gifts(pod, c.at) {
		return
	}
	j.violateAt(pod.Namespace+"/"+setOf(pod).Name, c.at, fmt.Sprintf("pod %s deleted by the ReplicaSet controller (version %d) when there were %d active pods and %d asked for",
		pod.Name, c.version, len(t.active), least))
}

// gifts reports whether the user recently gave pods to the ReplicaSet or took pods away.
func (j *judge) gifts(pod *corev1.Pod, at time.Time) bool {
	of := pod.Namespace + "/" + setOf(pod).Name
	return slices.ContainsFunc(j.diary, func(e entry) bool {
		return e.of == of && (strings.HasPrefix(e.text, "pod ") || strings.HasPrefix(e.text, "deleted")) && e.at.Before(at.Add(time.Second)) && at.Sub(e.at) < recently
	})
}
