package replicaset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

const month = 30 * 24 * time.Hour

// standing describes a pod for the order of deletion.
func standing(name, node string, p corev1.PodPhase, edits ...func(*caches.Pod)) *caches.Pod {
	base := []func(*caches.Pod){onNode(node), phase(p), createdAt(metav1.Time{}), func(pod *caches.Pod) { pod.UID = "" }}
	return newPod(name, append(base, edits...)...)
}

func restarted(regular, sidecar int32) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Restarts, pod.SidecarRestarts = regular, sidecar }
}

var (
	unscheduled         = standing("unscheduled", "", corev1.PodPending)
	pending             = standing("pending", "node", corev1.PodPending)
	unknownPhase        = standing("unknown phase", "node", corev1.PodUnknown)
	notReady            = standing("not ready", "node", corev1.PodRunning)
	readySinceNobody    = standing("ready since nobody knows", "node", corev1.PodRunning, readySince(metav1.Time{}))
	readyNow            = standing("ready now", "node", corev1.PodRunning, readySince(ago(0)), createdAt(ago(0)))
	readyMonth          = standing("ready for a month", "node", corev1.PodRunning, readySince(ago(month)), createdAt(ago(month)))
	readyNowOld         = standing("old, ready now", "node", corev1.PodRunning, readySince(ago(0)), createdAt(ago(month)))
	readyNowRestarts    = standing("many restarts", "node", corev1.PodRunning, readySince(ago(0)), createdAt(ago(0)), restarted(9001, 0))
	readyNowSidecars    = standing("many sidecar restarts", "node", corev1.PodRunning, readySince(ago(0)), createdAt(ago(0)), restarted(9001, 9001))
	cheap               = standing("cheap", "node", corev1.PodRunning, readySince(ago(0)), createdAt(ago(month)), cost("10"))
	dear                = standing("dear", "node", corev1.PodRunning, readySince(ago(0)), createdAt(ago(month)), cost("100"))
	unscheduled5h       = standing("unscheduled for 5 h", "", corev1.PodPending, createdAt(ago(5*time.Hour)))
	unscheduled8h       = standing("unscheduled for 8 h", "", corev1.PodPending, createdAt(ago(8*time.Hour)))
	ready2h             = standing("ready for 2 h", "", corev1.PodRunning, readySince(ago(2*time.Hour)), createdAt(ago(month)))
	ready5h             = standing("ready for 5 h", "", corev1.PodRunning, readySince(ago(5*time.Hour)), createdAt(ago(month)))
	ready8h             = standing("ready for 8 h", "", corev1.PodRunning, readySince(ago(8*time.Hour)), createdAt(ago(month)))
	readyMonthCrashing  = standing("ready for a month, restarts", "node", corev1.PodRunning, readySince(ago(month)), createdAt(ago(month)), restarted(1, 0))
	readyMonthCrashing2 = standing("ready for a month, sidecar restarts", "node", corev1.PodRunning, readySince(ago(month)), createdAt(ago(month)), restarted(1, 1))
)

// rankOf computes the rank of a pod that has a number of neighbours.
func rankOf(pod *caches.Pod, neighbours int, useCost bool) rank {
	related := make([]*caches.Pod, neighbours)
	for i := range related {
		related[i] = standing(fmt.Sprint("neighbour ", i), pod.NodeName, corev1.PodRunning)
	}
	return rankPods([]*caches.Pod{pod}, related, useCost, now)[0]
}

func TestOrderOfDeletion(t *testing.T) {
	for _, tt := range []struct {
		first      *caches.Pod
		firstNear  int // neighbours
		second     *caches.Pod
		secondNear int
		noCost     bool
		rule       string
	}{
		{unscheduled, 1, pending, 2, false, "not assigned to a node"},
		{unscheduled, 2, pending, 1, false, "not assigned to a node"},
		{pending, 1, unknownPhase, 2, false, "earlier phase"},
		{unknownPhase, 1, notReady, 2, false, "earlier phase"},
		{notReady, 1, readySinceNobody, 1, false, "not ready"},
		{readySinceNobody, 1, readyNow, 1, false, "ready for a shorter time"},
		{readyNow, 2, readySinceNobody, 1, false, "more related pods on its node"},
		{readyNow, 1, readyMonth, 1, false, "ready for a shorter time"},
		{readyNow, 2, readyMonth, 1, false, "more related pods on its node"},
		{readyNowRestarts, 1, readyNow, 1, false, "more restarts"},
		{readyNowSidecars, 1, readyNowRestarts, 1, false, "more sidecar restarts"},
		{readyNow, 2, readyNowRestarts, 1, false, "more related pods on its node"},
		{readyNow, 1, readyNowOld, 1, false, "younger"},
		{readyNowOld, 2, readyNow, 1, false, "more related pods on its node"},
		{cheap, 2, dear, 1, false, "lower deletion cost"},
		{dear, 2, cheap, 1, true, "more related pods on its node"},
		{ready2h, 1, ready5h, 1, false, "ready for a shorter time"},
		{cheap, 1, dear, 9, false, "lower deletion cost"},
		{readyMonthCrashing, 1, readyMonth, 1, false, "more restarts"},
		{readyMonthCrashing2, 1, readyMonthCrashing, 1, false, "more sidecar restarts"},
	} {
		t.Run(tt.first.Name+" before "+tt.second.Name, func(t *testing.T) {
			a, b := rankOf(tt.first, tt.firstNear, !tt.noCost), rankOf(tt.second, tt.secondNear, !tt.noCost)
			if order, back := compareRanks(a, b), compareRanks(b, a); order >= 0 || back <= 0 {
				t.Errorf("order %d, reversed %d; want -1, 1: %s", order, back, tt.rule)
			}
		})
	}
	for _, pair := range [][2]*caches.Pod{{unscheduled5h, unscheduled8h}, {ready5h, ready8h}} {
		if compareRanks(rankOf(pair[0], 1, true), rankOf(pair[1], 1, true)) != 0 {
			t.Errorf("%s and %s differ, but their ages are in the same bucket", pair[0].Name, pair[1].Name)
		}
	}
}

func TestChooseVictims(t *testing.T) {
	node := func(name string, edits ...func(*caches.Pod)) *caches.Pod {
		return standing(name, name, corev1.PodRunning, edits...)
	}
	one, two := node("node-1", readySince(metav1.Time{})), node("node-2", readySince(metav1.Time{}))
	broken, waiting, homeless := notReady, pending, unscheduled
	for _, tt := range []struct {
		name    string
		pods    []*caches.Pod
		related []*caches.Pod // nil: pods
		n       int
		want    []*caches.Pod
	}{
		{"none of none", nil, nil, 0, nil},
		{"all of two", []*caches.Pod{broken, one}, nil, 2, []*caches.Pod{one, broken}},
		{"all of five, by name", []*caches.Pod{homeless, one, two, broken, waiting}, nil, 5, []*caches.Pod{one, two, broken, waiting, homeless}},
		{"all of five, with nothing related", []*caches.Pod{homeless, one, two, broken, waiting}, []*caches.Pod{}, 5,
			[]*caches.Pod{one, two, broken, waiting, homeless}},
		{"both that are not ready", []*caches.Pod{one, broken, broken}, nil, 2, []*caches.Pod{broken, broken}},
		{"the one with company on its node", []*caches.Pod{one, two}, []*caches.Pod{one, two, two}, 1, []*caches.Pod{two}},
		{"three of five", []*caches.Pod{one, two, broken, waiting, homeless}, nil, 3, []*caches.Pod{homeless, waiting, broken}},
	} {
		related := tt.related
		if related == nil {
			related = tt.pods
		}
		if got := chooseVictims(tt.pods, related, tt.n, true, now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: victims %v, want %v", tt.name, podNames(got), podNames(tt.want))
		}
	}
}

// TestOrderIsTotal: the choice does not depend on the order in which pods are listed, and the comparison is
// transitive. The ages and restarts are drawn so that upstream's order has cycles.
func TestOrderIsTotal(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(values ...time.Duration) metav1.Time { return ago(values[random.IntN(len(values))]) }
	for range 300 {
		pods := make([]*caches.Pod, 3+random.IntN(12))
		for i := range pods {
			pods[i] = newPod(fmt.Sprint("pod-", i), onNode(fmt.Sprint("node-", random.IntN(3))),
				readySince(pick(time.Hour, time.Hour, 70*time.Minute, 5*time.Hour, 6*time.Hour)),
				createdAt(pick(10*time.Hour, 12*time.Hour, 30*time.Hour)), restarted(int32(random.IntN(3)), int32(random.IntN(2))))
			pods[i].UID = types.UID(fmt.Sprint(random.IntN(1000), "-", i))
			if random.IntN(3) == 0 {
				pods[i].Ready = caches.Condition{}
			}
		}
		n := 1 + random.IntN(len(pods))
		want := chooseVictims(pods, pods, n, true, now)
		for range 5 {
			random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			if got := chooseVictims(pods, pods, n, true, now); !slices.Equal(got, want) {
				t.Fatalf("victims depend on the order of the pods: %v and %v", got, want)
			}
		}
		ranks := rankPods(pods, pods, true, now)
		for a := range ranks {
			for b := range ranks {
				for c := range ranks {
					if compareRanks(ranks[a], ranks[b]) < 0 && compareRanks(ranks[b], ranks[c]) < 0 && compareRanks(ranks[a], ranks[c]) >= 0 {
						t.Fatalf("%s < %s < %s, but not %[1]s < %[3]s", ranks[a].pod.Name, ranks[b].pod.Name, ranks[c].pod.Name)
					}
				}
			}
		}
	}
}

func TestDeletionCost(t *testing.T) {
	for value, want := range map[string]int32{
		"": 0, "0": 0, "10": 10, "-10": -10, "2147483647": 2147483647, "-2147483648": -2147483648, "-05": -5,
		"+10": 0, "008": 0, " 5": 0, "5 ": 0, "1.5": 0, "2147483648": 0, "-2147483649": 0, "many": 0, "00": 0, "1_0": 0,
	} {
		if got := deletionCost(map[string]string{corev1.PodDeletionCost: value}); got != want {
			t.Errorf("deletionCost(%q) = %d, want %d", value, got, want)
		}
	}
	if got := deletionCost(nil); got != 0 {
		t.Errorf("without the annotation it is %d, want 0", got)
	}
}

func TestAgeRatios(t *testing.T) {
	aged := func(d time.Duration, ready bool) *caches.Pod {
		pod := newPod("a", createdAt(ago(d)))
		if ready {
			readySince(ago(0))(pod)
		}
		return pod
	}
	young, old, unready := aged(time.Hour, true), aged(90*time.Minute, true), aged(time.Minute, false)
	for _, tt := range []struct {
		name            string
		active, victims []*caches.Pod
		want            []float64
	}{
		{"multiples of the youngest ready pod's age", []*caches.Pod{young, old, unready}, []*caches.Pod{young, old, unready}, []float64{1, 1.5}},
		{"nothing ready", []*caches.Pod{unready}, []*caches.Pod{unready}, nil},
		{"created this instant", []*caches.Pod{aged(0, true), old}, []*caches.Pod{old}, nil},
	} {
		if got := ageRatios(tt.active, tt.victims, now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
