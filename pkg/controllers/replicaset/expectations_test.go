package replicaset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"minikcm/pkg/caches"
)

// TestCachedReadMissesNoPod reads the cache while the pods of creates with unknown outcome arrive: each pod is in
// the result, or its name stays taken.
func TestCachedReadMissesNoPod(t *testing.T) {
	rs := newSet(1)
	client := fake.NewClientset()
	store := caches.New(client, caches.Config{Name: t.Name()})
	pods, err := store.Pods()
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, rs)
	b.Controller.pods = pods
	ctx, cancel := context.WithCancel(t.Context())
	store.Start(ctx)
	defer store.Shutdown()
	defer cancel()
	if err := store.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		name := fmt.Sprint("p", i)
		b.expectations.creates.Start(name)
		go client.CoreV1().Pods(rs.Namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: rs.Namespace, UID: types.UID(name), Labels: rs.Spec.Selector.MatchLabels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: new(true)}},
		}}, metav1.CreateOptions{})
		for len(b.expectations.creates) > 0 {
			read := b.readCached(b.syncState).pods
			counted := slices.ContainsFunc(read, func(pod *caches.Pod) bool { return pod.Name == name })
			if !counted && len(b.expectations.creates) == 0 {
				t.Fatalf("pod %s is not counted, and its name is free", name)
			}
		}
	}
}

func TestExpectationsAreResolved(t *testing.T) {
	l := newExpectations()
	l.deleted = map[types.UID]bool{"deleted-shown": false, "deleted-terminating": true, "deleted-gone": true}
	soon, late := unconfirmedDelete{"5", now.Add(time.Second)}, unconfirmedDelete{"5", now.Add(time.Minute)}
	l.unconfirmed = map[types.UID]unconfirmedDelete{
		"perhaps-shown": late, "perhaps-soon": soon, "perhaps-terminating": soon, "perhaps-gone": late, "perhaps-changed": late, "perhaps-older": {"9", late.until},
	}
	pods := []*caches.Pod{
		newPod("made"), newPod("deleted-shown"), newPod("deleted-terminating", deleting), newPod("perhaps-shown"), newPod("perhaps-terminating", deleting),
		newPod("perhaps-soon"), newPod("perhaps-changed", version("6")), newPod("perhaps-older"),
	}
	l.update(pods, time.Time{})
	if got := l.confirmableAt(); !got.Equal(soon.until) {
		t.Errorf("the next is known at %v, want %v", got, soon.until)
	}
	if unanswered := keys(l.unconfirmed); !slices.Equal(unanswered, []types.UID{"perhaps-older", "perhaps-shown", "perhaps-soon"}) {
		t.Errorf("unanswered are deletes of %v: a pod that has changed cannot be deleted by an old request", unanswered)
	}
	for live, want := range map[time.Time]int{soon.until.Add(-1): 3, soon.until: 2} {
		copied := expectations{unconfirmed: maps.Clone(l.unconfirmed)}
		if copied.update(pods, live); len(copied.unconfirmed) != want {
			t.Errorf("after a read at %v %d unanswered deletes are left, want %d", live, len(copied.unconfirmed), want)
		}
	}
	l.update(pods, soon.until)
	for name, left := range map[string][]types.UID{"deleted": keys(l.deleted), "unanswered": keys(l.unconfirmed)} {
		want := map[string][]types.UID{"deleted": {"deleted-shown"}, "unanswered": {"perhaps-older", "perhaps-shown"}}[name]
		if !slices.Equal(left, want) {
			t.Errorf("%s left: %v, want %v", name, left, want)
		}
	}
}

func keys[V any](m map[types.UID]V) []types.UID {
	var out []types.UID
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
