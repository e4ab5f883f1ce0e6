package replicaset

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

func TestMemoriesOfARecreatedReplicaSet(t *testing.T) {
	all := newMemories()
	key := cache.NewObjectName("default", "web")
	old := all.of(key, "one")
	if all.of(key, "one") != old {
		t.Error("another memory for the same ReplicaSet")
	}
	if all.of(key, "two") == old {
		t.Error("a ReplicaSet of the same name inherited the memory")
	}
	next := all.of(key, "two")
	soon, late := now.Add(time.Second), now.Add(time.Minute)
	all.note(key, []time.Time{late, late}, false, now)
	all.note(key, []time.Time{soon, late, late}, false, now.Add(time.Second))
	if n, d := all.unanswered(now), all.oldestUnmet(now.Add(time.Minute)); n != 3 || d != time.Minute {
		t.Errorf("%d unanswered, unmet for %v; want 3 and 1m", n, d)
	}
	if at, end := all.unanswered(soon), all.unanswered(late); at != 2 || end != 0 {
		t.Errorf("%d and later %d unanswered, want 2, and none that can no longer be carried out", at, end)
	}
	all.note(key, nil, true, now)
	if n, d := all.unanswered(now), all.oldestUnmet(now.Add(time.Minute)); n != 0 || d != 0 {
		t.Errorf("%d unanswered, unmet for %v; want none", n, d)
	}
	all.reset()
	if all.of(key, "two") == next {
		t.Error("a new term inherited a memory")
	}
}
