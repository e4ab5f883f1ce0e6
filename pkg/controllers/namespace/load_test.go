package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// work runs the controller, with its caches and its loop, on the fakes of a bench in a synctest bubble. Call
// stop before the bubble ends.
func (b *bench) work(t *testing.T) (stop func()) {
	t.Helper()
	known := caches.New(b.client, caches.Config{Name: t.Name()})
	base := controller.Base{Client: b.client, Caches: known, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry()}
	c, err := newController(Config{Workers: 10}, base, b.Controller.metadata, b.discovery)
	if err != nil {
		t.Fatal(err)
	}
	stopCaches := fakeapi.FillCaches(t, known)
	end := fakeapi.Term(t, c.Run)
	return func() {
		end()
		stopCaches()
	}
}

// namesake returns a terminating namespace with another name.
func namesake(name string) *corev1.Namespace {
	return terminating(func(ns *corev1.Namespace) { ns.Name, ns.UID, ns.ResourceVersion = name, types.UID(name), "" })
}

func stuck(n int) (namespaces []runtime.Object) {
	for i := range n {
		namespaces = append(namespaces, namesake(fmt.Sprint("stuck-", i)))
	}
	return namespaces
}

func (b *bench) sent() int { return len(b.client.Actions()) + len(b.metadata.Actions()) }

// The controller of their finalizers is gone. A thousand such namespaces must not keep the API server busy. When the
// finalizers are gone, the namespaces go without an event.
func TestStuckNamespacesCostFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 20
		b := newBench(t, stuck(count)...)
		var released atomic.Bool
		b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !released.Load(), deleting("ConfigMap", "v1", "example.com/hold"), nil
		})
		stop := b.work(t)
		defer stop()
		// The first sync sends five requests, the conditions included; each of the others four.
		for _, tt := range []struct {
			after, during time.Duration
			syncs         int
		}{
			{0, time.Minute, 24},
			{time.Hour, 10 * time.Minute, 20},
		} {
			time.Sleep(tt.after)
			before := b.sent()
			time.Sleep(tt.during)
			if each := float64(b.sent()-before) / count; each > 4*float64(tt.syncs)+2 {
				t.Errorf("%.1f requests for each stuck namespace during %v after %v, want %d syncs of 4 requests", each, tt.during, tt.after, tt.syncs)
			}
			synctest.Wait()
			if n := int(b.discovery.asked.Load()); tt.after == 0 && n > count {
				t.Errorf("%d discoveries in the first minute, want namespaces to share discoveries", n)
			}
		}
		released.Store(true)
		time.Sleep(31 * time.Second)
		if n := len(slices.DeleteFunc(requests(b.client.Actions()), func(r string) bool { return r != finalization })); n != count {
			t.Errorf("%d of %d namespaces finalized", n, count)
		}
	})
}

// hanging lets lists of the group time out.
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

// Many namespaces wait for an API that never responds. The pods of another namespace must not wait.
func TestSilentAPIBlocksNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = "late"
		b := newBench(t, stuck(200)...)
		b.serve("a.io/v1", typ("hang", "delete", "list"))
		var lookedAt time.Time
		b.metadata.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() == late && lookedAt.IsZero() {
				lookedAt = time.Now()
			}
			return false, nil, nil
		})
		b.Controller.metadata = hanging{b.metadata, "a.io"}
		stop := b.work(t)
		defer stop()
		time.Sleep(11 * time.Second)
		begin := time.Now()
		if _, err := b.client.CoreV1().Namespaces().Create(t.Context(), namesake(late), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := b.sent()
		time.Sleep(24 * time.Second)
		if got := b.sent() - before; got > 2400 {
			t.Errorf("%d requests in 24 s, want at most 100 per second", got)
		}
		time.Sleep(3 * time.Minute)
		if lookedAt.IsZero() || lookedAt.Sub(begin) > time.Second {
			t.Errorf("looked at %v after the deletion", lookedAt.Sub(begin))
		}
	})
}

// A sync that gets no slot ends before the sync counts as stuck, however many types there are.
func TestSyncWithoutASlotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, terminating())
		b.Clock = clock.RealClock{}
		b.beginTerm()
		for i := range 50 {
			b.serve("a.io/v1", typ(fmt.Sprint("type", i), "delete", "list"))
		}
		b.deletions.Store(types.UID("uid-1"), time.Now().Add(-time.Second))
		api := schema.GroupVersion{Group: "a.io", Version: "v1"}
		b.unresponsive.record(api, "other", true)
		begin := time.Now()
		b.discovery.ask = func() { b.slots.TryAcquire(requestsAtOnce) } // other namespaces take all slots
		if _, err := b.sync(t.Context(), "test"); !errors.Is(err, errNoSlot) || time.Since(begin) > 90*time.Second {
			t.Errorf("%v after %v, want no slot after a minute", err, time.Since(begin))
		}
		if _, paused := b.unresponsive.pauses[api]; !paused {
			t.Error("a sync without a request ended the pause of the API")
		}
	})
}

// The deletion of the last pod ends the wait between two syncs.
func TestDeletionOfTheLastPodEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "x"}}
		b := newBench(t, terminating())
		if err := b.client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
		var gone atomic.Bool
		b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !gone.Load(), item("Pod", "v1"), nil
		})
		stop := b.work(t)
		defer stop()
		time.Sleep(time.Minute)
		gone.Store(true)
		if err := b.client.CoreV1().Pods("test").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if !b.finalized() {
			t.Error("not finalized 100 ms after the last pod was gone")
		}
	})
}
