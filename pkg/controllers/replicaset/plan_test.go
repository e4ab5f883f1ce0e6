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
	type numbers struct{ Create, Surplus, Repeat, Spared, Missing int }
	for _, tt := range []struct {
		name         string
		want, active int
		unanswered   int // how many of the active ones
		burst        int
		expect       numbers
	}{
		{"enough", 2, 2, 0, 500, numbers{}},
		{"none wanted, none there", 0, 0, 0, 500, numbers{}},
		{"too few", 3, 1, 0, 500, numbers{Create: 2, Missing: 2}},
		{"creates are bounded by burst", 30, 0, 0, 5, numbers{Create: 5, Missing: 30}},
		{"the rest of a burst", 12, 10, 0, 5, numbers{Create: 2, Missing: 2}},
		{"too many", 1, 3, 0, 500, numbers{Surplus: 2, Missing: -2}},
		{"deletes are bounded by burst", 0, 12, 0, 5, numbers{Surplus: 5, Missing: -12}},
		{"a delete that was not answered is sent again if there still are too many", 2, 3, 1, 500, numbers{Repeat: 1, Missing: -1}},
		{"before any other", 1, 3, 1, 500, numbers{Repeat: 1, Surplus: 1, Missing: -2}},
		{"repetitions are part of the burst", 0, 12, 2, 5, numbers{Repeat: 2, Surplus: 3, Missing: -12}},
		{"a pod that is wanted again is neither deleted again nor replaced", 3, 3, 1, 500, numbers{Spared: 1}},
		{"a whole scale-down taken back", 20, 20, 18, 500, numbers{Spared: 18}},
		{"and half of it", 10, 20, 18, 500, numbers{Repeat: 10, Spared: 8, Missing: -10}},
		{"more than before are wanted", 25, 20, 18, 500, numbers{Create: 5, Spared: 18, Missing: 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			unanswered := map[types.UID]unansweredDelete{}
			pods := podsNamed(tt.active)
			for _, pod := range pods[:tt.unanswered] {
				unanswered[pod.UID] = unansweredDelete{}
			}
			p := planReplicas(tt.want, pods, unanswered, tt.burst)
			got := numbers{p.create, p.surplus, p.repeat, p.spared(), p.missing}
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
		unanswered := map[types.UID]unansweredDelete{}
		for _, pod := range pods {
			if random.IntN(4) == 0 {
				unanswered[pod.UID] = unansweredDelete{}
			}
		}
		want, burst := random.IntN(20), 1+random.IntN(10)
		p := planReplicas(want, pods, unanswered, burst)
		leaving := append(chooseVictims(p.candidates, pods, p.surplus, true, now), chooseVictims(p.unanswered, pods, p.repeat, true, now)...)
		seen := map[types.UID]bool{}
		for _, pod := range leaving {
			if seen[pod.UID] || !slices.Contains(pods, pod) {
				t.Fatalf("pod %s is deleted twice or not ours", pod.Name)
			}
			seen[pod.UID] = true
		}
		left := len(pods) - len(leaving)
		switch {
		case p.create > burst || len(leaving) > burst || p.create > 0 && len(leaving) > 0:
			t.Fatalf("burst %d: %d creates and %d deletes", burst, p.create, len(leaving))
		case len(leaving) > 0 && left < want:
			t.Fatalf("want %d, %d pods would be left of %d", want, left, len(pods))
		case p.surplus > 0 && p.spared() > 0:
			t.Fatalf("%d new deletes while %d unanswered ones may be carried out", p.surplus, p.spared())
		case left+p.create > want && len(leaving) < burst:
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
		first   int
		n       int
		allowed int // calls that succeed
		batches []int
		err     error
	}{
		{"nothing to do", 1, 0, 10, nil, nil},
		{"everything fails: one call", 1, 10, 0, []int{1}, boom},
		{"everything succeeds", 1, 10, 10, []int{1, 2, 4, 3}, nil},
		{"half succeeds: the batch is finished, the rest is not begun", 1, 10, 5, []int{1, 2, 4}, boom},
		{"a burst takes nine batches", 1, 500, 500, []int{1, 2, 4, 8, 16, 32, 64, 128, 245}, nil},
		{"ten of a hundred succeed: at most fifteen calls", 1, 100, 10, []int{1, 2, 4, 8}, boom},
		{"it goes on where it was cut", 64, 200, 200, []int{64, 128, 8}, nil},
		{"and with what is left", 64, 10, 10, []int{10}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var batches []int
			calls := 0
			err := slowStart(tt.first, tt.n, func(size int) error {
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
