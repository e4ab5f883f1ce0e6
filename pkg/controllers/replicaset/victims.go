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

// rank holds the sort keys of a pod in the order of deletion.
type rank struct {
	pod        *caches.Pod
	assigned   int // 1 if on a node
	phase      int // see phaseOrder
	ready      int // 1 if ready
	cost       int32
	neighbours int // related active pods on the same node
	readyAge   int // bucket; 0 if not ready
	restarts   int32
	sidecars   int32 // of restartable init containers
	age        int   // bucket
}

// compareRanks orders pods by deletion. The order is total, so the order in which the cache lists pods does
// not matter.
func compareRanks(a, b rank) int {
	return cmp.Or(
		cmp.Compare(a.assigned, b.assigned),
		cmp.Compare(a.phase, b.phase),
		cmp.Compare(a.ready, b.ready),
		cmp.Compare(a.cost, b.cost),
		cmp.Compare(b.neighbours, a.neighbours),
		cmp.Compare(a.readyAge, b.readyAge),
		cmp.Compare(b.restarts, a.restarts),
		cmp.Compare(b.sidecars, a.sidecars),
		cmp.Compare(a.age, b.age),
		cmp.Compare(a.pod.UID, b.pod.UID),
	)
}

// chooseVictims returns n of the pods to delete. related are all pods that do the same work, the pods
// included. useCost makes the deletion cost annotation count. If all pods go, they are ordered by name.
func chooseVictims(pods, related []*caches.Pod, n int, useCost bool, now time.Time) []*caches.Pod {
	if n >= len(pods) {
		return slices.SortedFunc(slices.Values(pods), func(a, b *caches.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	ranks := rankPods(pods, related, useCost, now)
	slices.SortFunc(ranks, compareRanks)
	victims := make([]*caches.Pod, n)
	for i := range victims {
		victims[i] = ranks[i].pod
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
			phase:      phaseOrder[pod.Phase],
			neighbours: onNode[pod.NodeName],
			restarts:   pod.Restarts,
			sidecars:   pod.SidecarRestarts,
			age:        ageBucket(pod.CreationTimestamp.Time, now),
		}
		if useCost {
			ranks[i].cost = deletionCost(pod.Annotations)
		}
		if pod.NodeName != "" {
			ranks[i].assigned = 1
		}
		if pod.IsReady() {
			ranks[i].ready, ranks[i].readyAge = 1, ageBucket(pod.Ready.Since.Time, now)
		}
	}
	return ranks
}

// phaseOrder is 0 for all other phases.
var phaseOrder = map[corev1.PodPhase]int{corev1.PodUnknown: 1, corev1.PodRunning: 2}

// ageBucket returns the integer part of log2 of an age in nanoseconds. A time that is not in the past is
// -1, an unknown time -2.
func ageBucket(t, now time.Time) int {
	if t.IsZero() {
		return -2
	}
	age := now.Sub(t)
	if age <= 0 {
		return -1
	}
	return bits.Len64(uint64(age)) - 1
}

// deletionCost parses the annotation. Like the validation of the API server it accepts no plus sign and no
// leading zeros. An invalid or absent annotation counts as 0.
func deletionCost(annotations map[string]string) int32 {
	value := annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(value, 10, 32)
	if err != nil || value[0] == '+' || value[0] == '0' {
		return 0
	}
	return int32(cost)
}

// ageRatios returns the ages of the ready victims as multiples of the age of the youngest ready pod.
func ageRatios(active []*caches.Pod, victims []*caches.Pod, now time.Time) []float64 {
	var youngest time.Time
	for _, pod := range active {
		if pod.IsReady() && pod.CreationTimestamp.After(youngest) {
			youngest = pod.CreationTimestamp.Time
		}
	}
	least := now.Sub(youngest)
	if least <= 0 || youngest.IsZero() {
		return nil
	}
	var ratios []float64
	for _, pod := range victims {
		if pod.IsReady() {
			ratios = append(ratios, float64(now.Sub(pod.CreationTimestamp.Time))/float64(least))
		}
	}
	return ratios
}
