package replicaset

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
)

// victim is a pod chosen to be deleted, and why it rather than the first one that stays.
type victim struct {
	pod  *caches.Pod
	rule string
	kept string // name of the pod that stays and was next in line; empty if none stays
}

// rank is where a pod stands in the order of deletion, computed once per pod so that sorting compares plain values.
type rank struct {
	pod        *caches.Pod
	unassigned bool
	phase      int // pending 0, unknown 1, running 2
	ready      bool
	cost       int32
	neighbours int // related active pods on the same node
	readyAge   int // bucket; 0 for all that are not ready
	restarts   int32
	sidecars   int32 // restarts of restartable init containers
	age        int   // bucket
}

// rules are the order of deletion: the first rule that tells two pods apart decides. Together they are a total order.
var rules = []struct {
	name    string
	compare func(a, b *rank) int
}{
	{"not assigned to a node", func(a, b *rank) int { return first(a.unassigned, b.unassigned) }},
	{"earlier phase", func(a, b *rank) int { return cmp.Compare(a.phase, b.phase) }},
	{"not ready", func(a, b *rank) int { return first(!a.ready, !b.ready) }},
	{"lower deletion cost", func(a, b *rank) int { return cmp.Compare(a.cost, b.cost) }},
	{"more related pods on its node", func(a, b *rank) int { return cmp.Compare(b.neighbours, a.neighbours) }},
	{"ready for a shorter time", func(a, b *rank) int { return cmp.Compare(a.readyAge, b.readyAge) }},
	{"more restarts", func(a, b *rank) int { return cmp.Compare(b.restarts, a.restarts) }},
	{"more sidecar restarts", func(a, b *rank) int { return cmp.Compare(b.sidecars, a.sidecars) }},
	{"younger", func(a, b *rank) int { return cmp.Compare(a.age, b.age) }},
	{"smaller UID", func(a, b *rank) int { return cmp.Compare(a.pod.UID, b.pod.UID) }},
}

const ruleNoneStays = "none stays"

// first orders those that are before those that are not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// compareRanks orders two pods by who is deleted first and names the rule that decided.
func compareRanks(a, b *rank) (int, string) {
	for _, rule := range rules {
		if c := rule.compare(a, b); c != 0 {
			return c, rule.name
		}
	}
	return 0, ""
}

// chooseVictims picks n of pods to delete. related are all pods that do the same work, pods included; useCost makes the deletion cost annotation
// count. If all go they are not ranked, but in the order of their names.
func chooseVictims(pods, related []*caches.Pod, n int, useCost bool, now time.Time) []victim {
	victims := make([]victim, 0, min(n, len(pods)))
	if n >= len(pods) {
		for _, pod := range slices.SortedFunc(slices.Values(pods), func(a, b *caches.Pod) int { return cmp.Compare(a.Name, b.Name) }) {
			victims = append(victims, victim{pod: pod, rule: ruleNoneStays})
		}
		return victims
	}
	ranks := rankPods(pods, related, useCost, now)
	slices.SortFunc(ranks, func(a, b rank) int {
		c, _ := compareRanks(&a, &b)
		return c
	})
	for i := range n {
		_, rule := compareRanks(&ranks[i], &ranks[n])
		victims = append(victims, victim{pod: ranks[i].pod, rule: rule, kept: ranks[n].pod.Name})
	}
	return victims
}

func rankPods(pods, related []*caches.Pod, useCost bool, now time.Time) []rank {
	onNode := map[string]int{}
	for _, pod := range related {
		if pod.IsActive() {
			onNode[pod.NodeName]++
		}
	}
	ranks := make([]rank, len(pods))
	for i, pod := range pods {
		ranks[i] = rank{
			pod:        pod,
			unassigned: pod.NodeName == "",
			phase:      phaseOrder(pod.Phase),
			ready:      isReady(pod),
			neighbours: onNode[pod.NodeName],
			restarts:   pod.Restarts,
			sidecars:   pod.SidecarRestarts,
			age:        bucket(pod.CreationTimestamp.Time, now),
		}
		if useCost {
			ranks[i].cost = deletionCost(pod.Annotations)
		}
		if ranks[i].ready {
			ranks[i].readyAge = bucket(pod.Ready.Since.Time, now)
		}
	}
	return ranks
}

func phaseOrder(phase corev1.PodPhase) int {
	switch phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	}
	return 0
}

// bucket sorts a time by the order of magnitude of its age: the integer part of log2 of the nanoseconds since. A time that is not in the
// past is -1, an unknown one -2, so that both come before every age.
func bucket(t, now time.Time) int {
	if t.IsZero() {
		return -2
	}
	age := now.Sub(t)
	if age <= 0 {
		return -1
	}
	return bits.Len64(uint64(age)) - 1
}

// deletionCost reads the annotation. Like the API server's validation it takes no plus sign and no leading zeros; what it does not
// take counts as 0, like an absent annotation.
func deletionCost(annotations map[string]string) int32 {
	value := annotations[corev1.PodDeletionCost]
	if value == "" || value[0] == '+' || value[0] == '0' {
		return 0
	}
	cost, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// ageRatios are the ages of the ready victims, as multiples of the age of the youngest ready pod. Without a positive age to compare with
// there are none.
func ageRatios(active []*caches.Pod, victims []victim, now time.Time) []float64 {
	var youngest time.Time
	for _, pod := range active {
		if isReady(pod) && pod.CreationTimestamp.After(youngest) {
			youngest = pod.CreationTimestamp.Time
		}
	}
	least := now.Sub(youngest)
	if least <= 0 || youngest.IsZero() {
		return nil
	}
	var ratios []float64
	for _, v := range victims {
		if isReady(v.pod) {
			ratios = append(ratios, float64(now.Sub(v.pod.CreationTimestamp.Time))/float64(least))
		}
	}
	return ratios
}
