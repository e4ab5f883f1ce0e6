package replicaset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

func podsNamed(n int) []*caches.Pod {
	pods := make([]*caches.Pod, n)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("pod-%d", i))
	}
	return pods
}

func TestPlanReplicas(t *testing.T) {
	type numbers struct{ Create, Surplus, Repeat, Missing int }
	for _, tt := range []struct {
		name         string
		want, active int
		doomed       []types.UID
		burst        int
		expect       numbers
	}{
		{"enough", 2, 2, nil, 500, numbers{}},
		{"none wanted, none there", 0, 0, nil, 500, numbers{}},
		{"too few", 3, 1, nil, 500, numbers{Create: 2, Missing: 2}},
		{"creates are bounded by burst", 30, 0, nil, 5, numbers{Create: 5, Missing: 30}},
		{"the rest of a burst", 12, 10, nil, 5, numbers{Create: 2, Missing: 2}},
		{"too many", 1, 3, nil, 500, numbers{Surplus: 2, Missing: -2}},
		{"deletes are bounded by burst", 0, 12, nil, 5, numbers{Surplus: 5, Missing: -12}},
		{"a doomed pod counts as gone and is deleted again", 2, 3, []types.UID{"pod-1"}, 500, numbers{Repeat: 1}},
		{"it is replaced if it is needed", 3, 3, []types.UID{"pod-1"}, 500, numbers{Repeat: 1, Create: 1, Missing: 1}},
		{"repetitions are part of the burst", 0, 12, []types.UID{"pod-1", "pod-2"}, 5, numbers{Repeat: 2, Surplus: 3, Missing: -10}},
		{"a doomed pod that is not active does not matter", 2, 2, []types.UID{"gone"}, 500, numbers{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doomed := map[types.UID]doom{}
			for _, uid := range tt.doomed {
				doomed[uid] = doom{}
			}
			p := planReplicas(tt.want, podsNamed(tt.active), doomed, tt.burst)
			got := numbers{p.create, p.surplus, len(p.repeat), p.missing}
			if diff := cmp.Diff(tt.expect, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanProperties: whatever the numbers, a plan stays within the burst, touches only the pods it was given, each once, and ends at the
// wanted number if the burst allows.
func TestPlanProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		pods := podsNamed(random.IntN(20))
		doomed := map[types.UID]doom{}
		for _, pod := range pods {
			if random.IntN(4) == 0 {
				doomed[pod.UID] = doom{}
			}
		}
		want, burst := random.IntN(20), 1+random.IntN(10)
		p := planReplicas(want, pods, doomed, burst)
		victims := chooseVictims(p.candidates, pods, p.surplus, true, now)

		leaving := slices.Clone(p.repeat)
		for _, v := range victims {
			leaving = append(leaving, v.pod)
		}
		seen := map[types.UID]bool{}
		for _, pod := range leaving {
			if seen[pod.UID] || !slices.Contains(pods, pod) {
				t.Fatalf("pod %s is deleted twice or not ours", pod.Name)
			}
			seen[pod.UID] = true
		}
		left := len(pods) - len(leaving)
		switch {
		case p.create > burst || len(victims) > burst || p.create > 0 && len(victims) > 0:
			t.Fatalf("burst %d: %d creates and %d new deletes", burst, p.create, len(victims))
		case len(victims) > 0 && left < want:
			t.Fatalf("want %d, %d pods would be left of %d", want, left, len(pods))
		case left+p.create > want && len(victims)+len(p.repeat) < burst:
			t.Fatalf("want %d, %d pods would be left and %d created within a burst of %d", want, left, p.create, burst)
		case left+p.create < want && p.create < burst:
			t.Fatalf("want %d, %d pods would be left and only %d created", want, left, p.create)
		}
	}
}

func TestSlowStart(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name    string
		n       int
		allowed int // calls that succeed
		batches []int
		err     error
	}{
		{"nothing to do", 0, 10, nil, nil},
		{"everything fails: one call", 10, 0, []int{1}, boom},
		{"everything succeeds", 10, 10, []int{1, 2, 4, 3}, nil},
		{"half succeeds: the batch is finished, the rest is not begun", 10, 5, []int{1, 2, 4}, boom},
		{"a burst takes nine batches", 500, 500, []int{1, 2, 4, 8, 16, 32, 64, 128, 245}, nil},
		{"ten of a hundred succeed: at most fifteen calls", 100, 10, []int{1, 2, 4, 8}, boom},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var batches []int
			calls := 0
			err := slowStart(tt.n, func(size int) error {
				batches = append(batches, size)
				calls += size
				if calls > tt.allowed {
					return boom
				}
				return nil
			})
			if !errors.Is(err, tt.err) || !slices.Equal(batches, tt.batches) {
				t.Errorf("batches %v with error %v, want %v with %v", batches, err, tt.batches, tt.err)
			}
		})
	}
}
