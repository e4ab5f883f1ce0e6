package garbagecollector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestFeedIsTheStoreOfAReflector(t *testing.T) {
	w := newWorld(t)
	f := w.feed(configMaps)
	events := watch.NewFake()
	partial := func(o *thing) *metav1.PartialObjectMetadata { return &o.PartialObjectMetadata }
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{
				*partial(newThing("a", "o", uid(1)).at("5")), *partial(newThing("a", "c", uid(2)).at("6").owned(ref("v1", "ConfigMap", "o", uid(1))))}}
			list.ResourceVersion = "7"
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, fmt.Errorf("this API server does not stream lists")
			}
			return events, nil
		},
	}
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, f, cache.ReflectorOptions{Name: "test"})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	defer running.Wait()
	defer stop()
	reached := func(objects int) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
			return f.objectCount() == objects, nil
		}); err != nil {
			t.Fatalf("%d objects, want %d", f.objectCount(), objects)
		}
	}
	reached(2)
	events.Add(partial(newThing("a", "d", uid(3)).at("8")))
	reached(3)
	events.Modify(partial(newThing("a", "d", uid(3)).at("9").owned(ref("v1", "ConfigMap", "o", uid(1)))))
	events.Delete(partial(newThing("a", "o", uid(1)).at("11")))
	reached(2)
	for _, dependent := range []int{2, 3} {
		if _, against, _ := w.graph.observe(keyOf(uid(dependent))); len(against) != 1 || against[0].status != refVirtual || against[0].deletedAt.IsZero() {
			t.Errorf("against the owner of %d there is %v, want that its deletion was told", dependent, against)
		}
	}
}

func TestTransformerDropsUnusedMetadata(t *testing.T) {
	o := newThing("a", "c", uid(1)).owned(ref("v1", "Node", "n", uid(2)))
	o.Labels, o.Annotations, o.ManagedFields = map[string]string{"a": "b"}, map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{}}
	got, err := newWorld(t).feed(configMaps).Transformer()(&o.PartialObjectMetadata)
	kept, ok := got.(*metav1.PartialObjectMetadata)
	if err != nil || !ok || kept.Labels != nil || kept.Annotations != nil || kept.ManagedFields != nil || kept.UID != uid(1) || len(kept.OwnerReferences) != 1 {
		t.Errorf("kept is %+v (%v)", got, err)
	}
}

func TestListsWithOtherValuesAreRejected(t *testing.T) {
	w := newWorld(t)
	f := w.feed(configMaps)
	w.do(func() error { return f.Replace([]any{newThing("a", "o", uid(1))}, "5") })
	if err := f.Replace([]any{newThing("a", "p", uid(2)), "text"}, "6"); err == nil {
		t.Error("the list was taken")
	}
	if f.objectCount() != 1 {
		t.Errorf("%d objects, want one", f.objectCount())
	}
}

const population = 7

func randomThing(r *rand.Rand, typ objectType, u types.UID) *thing {
	namespace := []string{"a", "b"}[r.IntN(2)]
	if typ == nodesType {
		namespace = ""
	}
	obj := newThing(namespace, []string{"n", "m"}[r.IntN(2)], u).at(fmt.Sprint(1 + r.IntN(100)))
	for range r.IntN(3) {
		kind := []metav1.OwnerReference{
			ref("v1", "ConfigMap", "", ""), ref("apps/v1", "ReplicaSet", "", ""), ref("v1", "Node", "", ""), ref("example.com/v1/x", "Widget", "", ""),
		}[r.IntN(4)]
		kind.Name, kind.UID = []string{"n", "m"}[r.IntN(2)], uid(r.IntN(population+2))
		if r.IntN(2) == 0 {
			kind.BlockOwnerDeletion = new(true)
		}
		obj.OwnerReferences = append(obj.OwnerReferences, kind)
	}
	if r.IntN(3) == 0 {
		obj.finalizedBy([]string{"x/y", "foregroundDeletion", "orphan"}[r.IntN(3)])
	}
	if r.IntN(3) == 0 {
		obj.deleted()
	}
	return obj
}

func TestFeedsRunConcurrently(t *testing.T) {
	g := newGraph(clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), func(queueKeys) {})
	var all sync.WaitGroup
	for n, typ := range []objectType{configMaps, replicaSets, nodesType} {
		f := g.feed(typ)
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 13))
			mine := func() *thing { return randomThing(r, typ, uid(r.IntN(population)*3+n)) }
			for range 2000 {
				var err error
				switch o := mine(); r.IntN(6) {
				case 0:
					err = f.Delete(o)
				case 1:
					err = f.Replace([]any{o}, o.ResourceVersion)
				default:
					err = f.Add(o)
				}
				if err != nil {
					t.Error(err)
				}
			}
			_ = f.Replace(nil, "9")
		})
		all.Go(func() {
			for i := range 2000 {
				key := keyOf(uid(i % (3 * population)))
				g.observe(key)
				g.dependentsOf(key, 3)
				g.cycleBlockers(key)
				g.referring(key)
				if i%100 == 0 {
					g.all()
				}
			}
		})
	}
	all.Wait()
	if objects, absent, refs := g.size(); objects+absent+refs > 0 {
		t.Errorf("%d objects, %d absent and %d references are left of nothing", objects, absent, refs)
	}
}
