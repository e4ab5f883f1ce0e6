package replicaset

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

func TestObserveSpec(t *testing.T) {
	for _, tt := range []struct {
		name              string
		before            int64 // generation that pods were last created for in this term; 0: none
		generation, acted int64
		changed           bool
	}{
		{"first seen in this term", 0, 3, 3, false},
		{"first seen, and not acted on by the manager before us", 0, 3, 2, true},
		{"new", 0, 1, 0, true},
		{"as before", 3, 3, 3, false},
		{"as before, the status is late", 3, 3, 2, false},
		{"changed", 3, 4, 3, true},
	} {
		s := successors{generation: tt.before}
		s.observeSpec(tt.generation, tt.acted, now)
		if changed := s.specSince.Equal(now); changed != tt.changed || s.generation != tt.generation {
			t.Errorf("%s: changed %t, want %t; generation %d, want %d", tt.name, changed, tt.changed, s.generation, tt.generation)
		}
	}
}

func TestRefusedOwnershipWaits(t *testing.T) {
	th := newThrottle()
	minute := now.Add(time.Minute)
	th.ownership = map[types.UID]refusal{
		"refused": {"5", minute}, "refused-before": {"5", now.Add(time.Second)}, "over": {"5", now}, "changed": {"4", minute}, "gone": {"5", minute},
	}
	pods := []*caches.Pod{newPod("refused-before"), newPod("refused"), newPod("over"), newPod("changed"), newPod("other")}
	th.forget(pods)
	if left := keys(th.ownership); !slices.Equal(left, []types.UID{"over", "refused", "refused-before"}) {
		t.Errorf("refusals left: %v; want those of pods that are there and have not changed", left)
	}
	rest, again := th.admitted(pods, now)
	if want := []string{"over", "changed", "other"}; !slices.Equal(uids(rest), want) || again != time.Second {
		t.Errorf("admitted %v, again after %v; want %v, 1s", uids(rest), again, want)
	}
}
