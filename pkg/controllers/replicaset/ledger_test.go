package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// TestCachesMustReachALiveRead: they have to show the ReplicaSet that was read, and the pods, those of others too.
func TestCachesMustReachALiveRead(t *testing.T) {
	set := newSet(3, func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "40" })
	pods := []*caches.Pod{newPod("a", version("30")), newPod("b", version("35")), newPod("c", version("39"), ownedBy("another"))}
	b := newBench(t, set)
	b.ledger.readLive(b.read, set, pods, "44", now)
	if !b.ledger.verified {
		t.Error("not verified")
	}
	for _, tt := range []struct {
		at   controller.Versions
		want controller.BarrierState
	}{
		{versions("39", "40"), controller.Open}, {versions("38", "40"), controller.Behind}, {versions("39", "39"), controller.Behind},
	} {
		if got := b.ledger.barrier.State(tt.at, now); got != tt.want {
			t.Errorf("caches at %v: barrier %d, want %d", tt.at, got, tt.want)
		}
	}
	t.Run("versions lower than those we wrote mean that history was rewound", func(t *testing.T) {
		b := newBench(t, set)
		b.ledger.barrier.Require(b.read.pods, "1000", now)
		b.ledger.barrier.Require(b.read.sets, "2000", now)
		b.ledger.readLive(b.read, set, pods, "44", now)
		if got := b.ledger.barrier.State(versions("39", "40"), now); got != controller.Open {
			t.Errorf("barrier %d, want open", got)
		}
	})
}

// TestRemovedPods: after a live read the cache may still show pods that are gone, even ones it has not shown before.
func TestRemovedPods(t *testing.T) {
	cached := []*caches.Pod{
		newPod("listed", version("30")),
		newPod("removed", version("20")),
		newPod("newer", version("60")),
		newPod("relabelled", version("20"), labelled(map[string]string{"app": "db"})),
	}
	for _, tt := range []struct {
		name  string
		store string // version of the cache
		want  []string
	}{
		{"the cache is behind the list", "49", []string{"listed", "newer", "relabelled"}},
		{"the cache has reached the list", "50", []string{"listed", "removed", "newer", "relabelled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1))
			l := b.ledger
			l.readLive(b.read, newSet(1), []*caches.Pod{newPod("listed", version("30"))}, "50", now)
			l.list.Reached(tt.store)
			got := l.withoutRemoved(slices.Clone(cached), b.selects)
			if !slices.Equal(uids(got), tt.want) {
				t.Errorf("pods %v, want %v", uids(got), tt.want)
			}
			// The list is no longer needed once the cache has reached it.
			if forgotten := !l.list.Taken(); forgotten != (tt.store == "50") {
				t.Errorf("list forgotten: %t", forgotten)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	l := newLedger("set")
	l.creates = controller.Creates{{Name: "made", Unknown: true}, {Name: "taken", Unknown: true}, {Name: "pending", Unknown: true}, {Name: "free"}}
	l.deleted = map[types.UID]bool{"deleted-shown": false, "deleted-terminating": true, "deleted-gone": true}
	soon, late := unansweredDelete{"5", now.Add(time.Second)}, unansweredDelete{"5", now.Add(time.Minute)}
	l.unanswered = map[types.UID]unansweredDelete{
		"perhaps-shown": late, "perhaps-soon": soon, "perhaps-terminating": soon, "perhaps-gone": late, "perhaps-changed": late, "perhaps-older": {"9", late.until},
	}
	pods := []*caches.Pod{
		newPod("made"), newPod("deleted-shown"), newPod("deleted-terminating", deleting), newPod("perhaps-shown"), newPod("perhaps-terminating", deleting),
		newPod("perhaps-soon"), newPod("perhaps-changed", version("6")), newPod("perhaps-older"),
	}
	found := l.resolve(pods, byNameIn(append(pods, newPod("taken", ownedBy("another")))), time.Time{})
	if found != (lostAnswers{created: 1, deleted: 2, undone: 1}) {
		t.Errorf("found out about %+v, want 1 created, 2 deleted and 1 not", found)
	}
	if got := l.decided(); !got.Equal(soon.until) {
		t.Errorf("the next is known at %v, want %v", got, soon.until)
	}
	if unanswered := keys(l.unanswered); !slices.Equal(unanswered, []types.UID{"perhaps-older", "perhaps-shown", "perhaps-soon"}) {
		t.Errorf("unanswered are deletes of %v: a pod that has changed cannot be deleted by an old request", unanswered)
	}
	for _, live := range []time.Time{soon.until.Add(-1), soon.until} {
		want := lostAnswers{}
		if live.Equal(soon.until) {
			want.undone = 1
		}
		if found := l.resolve(pods, byNameIn(nil), live); found != want {
			t.Errorf("a read at %v finds out about %+v, want %+v", live, found, want)
		}
	}
	if want := (controller.Creates{{Name: "pending", Unknown: true}, {Name: "free"}}); !slices.Equal(l.creates, want) {
		t.Errorf("creates %v, want %v", l.creates, want)
	}
	for name, left := range map[string][]types.UID{"deleted": keys(l.deleted), "unanswered": keys(l.unanswered)} {
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

// TestCachedReadMissesNoPod reads the cache while it receives the pods of unanswered creates: each pod is in the result, or its name stays taken.
func TestCachedReadMissesNoPod(t *testing.T) {
	rs := newSet(1)
	client := fake.NewClientset()
	store := caches.New(client, caches.Config{Name: t.Name()})
	pods, err := store.Pods()
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, func(d *Deps) { d.Pods = pods }, rs)
	ctx, cancel := context.WithCancel(t.Context())
	store.Start(ctx)
	defer store.Shutdown()
	defer cancel()
	if err := store.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		name := fmt.Sprint("p", i)
		b.ledger.creates.Start(name)
		go client.CoreV1().Pods(rs.Namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: rs.Namespace, UID: types.UID(name), Labels: rs.Spec.Selector.MatchLabels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: new(true)}},
		}}, metav1.CreateOptions{})
		for len(b.ledger.creates) > 0 {
			read := b.read.cached(b.task).pods
			counted := slices.ContainsFunc(read, func(pod *caches.Pod) bool { return pod.Name == name })
			if !counted && len(b.ledger.creates) == 0 {
				t.Fatalf("pod %s is not counted, and its name is free", name)
			}
		}
	}
}
