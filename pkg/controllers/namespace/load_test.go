package namespace

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
)

// work runs a whole controller, with its caches and its loop, on the fakes of a bench. Call it within a synctest bubble, and what it returns
// before the bubble ends.
func (b *bench) work(t *testing.T) (stop func()) {
	t.Helper()
	known := caches.New(b.client, caches.Config{Name: t.Name()})
	namespaces, err := known.Namespaces()
	if err != nil {
		t.Fatal(err)
	}
	pods, err := known.Pods()
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Workers: 10}, Deps{
		Client: b.client, Metadata: b.deps.Metadata, Discovery: b.discovery, Namespaces: namespaces, Pods: pods,
		Recorder: b.events, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.events.Events = nil // nobody reads them here
	ctx, cancel := context.WithCancel(t.Context())
	known.Start(ctx)
	if err := known.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	var run sync.WaitGroup
	run.Go(func() { _ = c.Run(ctx) })
	return func() {
		cancel()
		run.Wait()
		known.Shutdown()
	}
}

// stays makes the list of ConfigMaps show one in whatever namespace it is asked for.
func (b *bench) stays(finalizers ...string) {
	b.metadata.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: a.GetNamespace(), Name: "stays", Finalizers: finalizers},
		}
		if len(finalizers) > 0 {
			o.DeletionTimestamp = &metav1.Time{Time: epoch}
		}
		return true, &metav1.List{Items: []runtime.RawExtension{{Object: o}}}, nil
	})
}

// Somebody makes an object again whenever it is deleted, and the server lets them. Each time the watch tells that it is gone.
func TestObjectsThatComeAgainAreNoHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, terminating())
		b.stays()
		stream := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1000})
		b.metadata.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) { return true, stream, nil })
		removed := 0
		b.metadata.PrependReactor("delete-collection", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			removed++
			stream.Delete(&metav1.PartialObjectMetadata{})
			return true, nil, nil
		})
		stop := b.work(t)
		time.Sleep(time.Minute)
		stop()
		if removed < 10 || removed > 110 {
			t.Errorf("the object was deleted %d times in a minute, want soon once a second", removed)
		}
	})
}

// Their finalizers' controller is gone for good. A thousand of them are not to keep the API server busy.
func TestStuckNamespacesCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 20
		var stuck []runtime.Object
		for i := range count {
			stuck = append(stuck, terminating(func(ns *corev1.Namespace) {
				ns.Name, ns.UID, ns.ResourceVersion = fmt.Sprint("stuck-", i), types.UID(fmt.Sprint("uid-", i)), ""
			}))
		}
		b := newBench(t, stuck...)
		b.stays("example.com/hold")
		sent := func() int { return len(b.client.Actions()) + len(b.metadata.Actions()) }
		stop := b.work(t)
		defer stop()
		// The first look sends five requests, the conditions included; each of the others four.
		for _, tt := range []struct {
			after, during time.Duration
			looks         int
		}{
			{0, time.Minute, 9},
			{time.Hour, 10 * time.Minute, 6},
		} {
			time.Sleep(tt.after)
			before := sent()
			time.Sleep(tt.during)
			if each := float64(sent()-before) / count; each > 4*float64(tt.looks)+2 {
				t.Errorf("%.1f requests for each stuck namespace during %v after %v, want %d looks of 4 requests", each, tt.during, tt.after, tt.looks)
			}
		}
	})
}

// Whoever removes finalizers from a large collection one by one changes it all the time. To list it as often would take more of the API
// server than they do. While there is something to delete, work goes on at once.
func TestLooksThatTakeLongAreFollowedByAPause(t *testing.T) {
	for _, tt := range []struct {
		name       string
		finalizers []string
		took, want time.Duration
	}{
		{"all are being deleted, a quick look", []string{"a/b"}, time.Millisecond, minRecheck},
		{"all are being deleted", []string{"a/b"}, 5 * time.Second, 20 * time.Second},
		{"all are being deleted, there are very many", []string{"a/b"}, time.Minute, 2 * time.Minute},
		{"some were not deleted yet", nil, 5 * time.Second, minRecheck},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			b.stays(tt.finalizers...)
			took := false
			b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !took {
					b.clock.Step(tt.took)
				}
				took = true
				return false, nil, nil
			})
			if next := b.mustSync(t); next.after != tt.want {
				t.Errorf("next look in %v, want %v", next.after, tt.want)
			}
		})
	}
}

// hanging never answers lists of the group.
type hanging struct {
	metadata.Interface
	group string
}

func (h hanging) Resource(r schema.GroupVersionResource) metadata.Getter {
	if r.Group == h.group {
		return hangingType{}
	}
	return h.Interface.Resource(r)
}

type hangingType struct{ metadata.ResourceInterface }

func (h hangingType) Namespace(string) metadata.ResourceInterface { return h }

func (hangingType) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Many namespaces have to be seen empty by an API that does not answer. The pods of the next one are not to wait for that.
func TestASilentAPIHoldsUpNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = "late"
		namesake := func(name string) *corev1.Namespace {
			return terminating(func(ns *corev1.Namespace) { ns.Name, ns.UID, ns.ResourceVersion = name, types.UID(name), "" })
		}
		var stuck []runtime.Object
		for i := range 100 {
			stuck = append(stuck, namesake(fmt.Sprint("stuck-", i)))
		}
		b := newBench(t, stuck...)
		b.discovery.lists = append(b.discovery.lists, served("a.io/v1", typ("hang", "delete", "list")))
		var lookedAt time.Time
		b.metadata.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() == late && lookedAt.IsZero() {
				lookedAt = time.Now()
			}
			return false, nil, nil
		})
		b.deps.Metadata = hanging{b.metadata, "a.io"}
		stop := b.work(t)
		defer stop()
		time.Sleep(11 * time.Second)
		begin := time.Now()
		if _, err := b.client.CoreV1().Namespaces().Create(t.Context(), namesake(late), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if lookedAt.IsZero() || lookedAt.Sub(begin) > time.Second {
			t.Errorf("looked at %v after the deletion", lookedAt.Sub(begin))
		}
	})
}

// One goroutine tells the handlers of all controllers of every pod. With 50,000 pods in the namespace, walking them for each that goes keeps
// all others waiting for minutes.
func TestADeletedPodCostsTheSameWhateverIsInItsNamespace(t *testing.T) {
	for _, others := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, terminating())
			for i := range others {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: fmt.Sprint("p", i)}}
				if err := b.client.Tracker().Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			known := caches.New(b.client, caches.Config{Name: t.Name()})
			namespaces, err := known.Namespaces()
			if err != nil {
				t.Fatal(err)
			}
			pods, err := known.Pods()
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(Config{Workers: 1}, Deps{Namespaces: namespaces, Pods: pods, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer known.Shutdown()
			defer cancel()
			known.Start(ctx)
			if err := known.WaitForSync(ctx); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			gone := &caches.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test"}}
			if n := testing.AllocsPerRun(100, func() { c.onPodGone(gone) }); n != 0 {
				t.Errorf("%v allocations with %d pods in the namespace, want none: a list of them is one", n, others)
			}
		})
	}
}
