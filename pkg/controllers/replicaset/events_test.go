package replicaset

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// woken runs an event on a controller that knows the ReplicaSets, and returns the names of the ReplicaSets that are
// queued at once, in order, and later. It must be called in a synctest bubble.
func woken(t *testing.T, sets []runtime.Object, event func(*Controller)) (names, later []string) {
	t.Helper()
	client := fakeapi.NewClientset(t, sets...)
	store := caches.New(client, caches.Config{Name: t.Name()})
	c, err := newController(Config{}, controller.Base{
		Client: client, Caches: store, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(),
		Recorder: func(string) record.EventRecorder { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var lock sync.Mutex
	var queued []string
	taken := func() (names []string) {
		synctest.Wait()
		lock.Lock()
		defer lock.Unlock()
		names, queued = queued, nil
		slices.Sort(names)
		return names
	}
	c.loop = controller.NewLoop(controller.LoopConfig{Controller: Name, Queue: queueName, Workers: 1, Clock: clock.RealClock{}}, prometheus.NewRegistry(),
		func(_ context.Context, key cache.ObjectName) (controller.Result, error) {
			lock.Lock()
			defer lock.Unlock()
			queued = append(queued, key.Name)
			return controller.Result{}, nil
		})
	defer fakeapi.FillCaches(t, store)()
	defer fakeapi.Term(t, c.Run)()
	taken() // all, at the beginning of the term
	event(c)
	names = taken()
	time.Sleep(10 * time.Second)
	return names, taken()
}

// TestWakeUps: the ReplicaSets that an event of a pod queues. web and twin select app=web, db selects app=db.
func TestWakeUps(t *testing.T) {
	named := func(name string, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		rs := newSet(1, edits...)
		rs.Name, rs.UID = name, types.UID("uid-"+name)
		return rs
	}
	selects := func(app string) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Spec.Selector.MatchLabels = map[string]string{"app": app} }
	}
	sets := []runtime.Object{
		named("web"), named("twin"), named("db", selects("db")),
		named("slow", selects("slow"), func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 }),
		named("empty", func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = &metav1.LabelSelector{} }),
		named("large", selects("large"), func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32(fewPods + 1)) }),
	}
	of := func(name string) func(*caches.Pod) {
		return func(pod *caches.Pod) {
			ref := controllerRef(named(name))
			pod.OwnerReferences = []metav1.OwnerReference{*ref}
		}
	}
	stale := func(pod *caches.Pod) { pod.OwnerReferences[0].UID = "older" }
	otherKind := func(pod *caches.Pod) { pod.OwnerReferences[0].Kind = "Job" }
	app := func(name string) func(*caches.Pod) { return labelled(map[string]string{"app": name}) }
	newer := version("6")
	update := func(old, pod *caches.Pod) func(*Controller) {
		return func(c *Controller) { c.podUpdated(old, pod) }
	}
	added := func(pod *caches.Pod) func(*Controller) { return func(c *Controller) { c.enqueuer.OnAdd(pod) } }
	deleted := func(pod *caches.Pod) func(*Controller) { return func(c *Controller) { c.enqueuer.OnDelete(pod) } }
	for _, tt := range []struct {
		name  string
		event func(*Controller)
		want  []string
		later []string
	}{
		{"a new pod wakes its owner only", added(newPod("a", of("web"))), []string{"web"}, nil},
		{"a new orphan wakes all that select it", added(newPod("a", orphaned)), []string{"twin", "web"}, nil},
		{"a new orphan without labels wakes nobody", added(newPod("a", orphaned, labelled(nil))), nil, nil},
		{"a new pod that is being deleted wakes its owner", added(newPod("a", of("web"), deleting)), []string{"web"}, nil},
		{"a new orphan that is being deleted wakes nobody", added(newPod("a", orphaned, deleting)), nil, nil},
		{"a pod of a ReplicaSet that was replaced wakes nobody", added(newPod("a", of("web"), stale)), nil, nil},
		{"a pod of another kind of owner wakes nobody", added(newPod("a", of("web"), otherKind)), nil, nil},
		{"a failed pod wakes its owner", added(newPod("a", of("web"), phase(corev1.PodFailed))), []string{"web"}, nil},
		{"a resync wakes nobody", update(newPod("a", of("web")), newPod("a", of("web"))), nil, nil},
		{"any change wakes the owner", update(newPod("a", of("web")), newPod("a", of("web"), newer)), []string{"web"}, nil},
		{"labels of an owned pod wake its owner only", update(newPod("a", of("web")), newPod("a", of("web"), newer, app("db"))), []string{"web"}, nil},
		{"a new owner: both are woken", update(newPod("a", of("web")), newPod("a", of("db"), newer)), []string{"db", "web"}, nil},
		{"released: the old owner and all that select it", update(newPod("a", of("db"), app("web")), newPod("a", orphaned, newer)), []string{"db", "twin", "web"}, nil},
		{"labels of an orphan wake all that select it now", update(newPod("a", orphaned, app("x")), newPod("a", orphaned, newer, app("db"))), []string{"db"}, nil},
		{"another change of an orphan wakes nobody", update(newPod("a", orphaned), newPod("a", orphaned, newer, onNode("n"))), nil, nil},
		{"a deletion begins", update(newPod("a", of("web")), newPod("a", of("web"), newer, deleting)), []string{"web"}, nil},
		{"released while being deleted: the old owner", update(newPod("a", of("web")), newPod("a", orphaned, newer, deleting)), []string{"web"}, nil},
		{"deleted", deleted(newPod("a", of("web"))), []string{"web"}, nil},
		{"a deleted orphan wakes nobody", deleted(newPod("a", orphaned)), nil, nil},
		{"ready, and available later", update(newPod("a", of("slow")), newPod("a", of("slow"), newer, readySince(ago(0)))), []string{"slow"}, []string{"slow"}},
		{"ready before already", update(newPod("a", of("slow"), readySince(ago(0))), newPod("a", of("slow"), newer, readySince(ago(0)))), []string{"slow"}, nil},
		{"updates of pods of a large ReplicaSet are gathered", func(c *Controller) {
			c.podUpdated(newPod("a", of("large")), newPod("a", of("large"), newer))
			synctest.Wait()
			c.podUpdated(newPod("b", of("large")), newPod("b", of("large"), newer))
		}, nil, []string{"large"}},
		{"the end of such a pod is not", update(newPod("a", of("large")), newPod("a", of("large"), newer, deleting)), []string{"large"}, nil},
		{"a new namespace wakes all in it", func(c *Controller) {
			c.enqueuer.NamespaceHandler().Update(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "1"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "2"}})
		}, []string{"db", "empty", "large", "slow", "twin", "web"}, nil},
		{"events outside a term are ignored", func(c *Controller) {
			c.inTerm.Store(false)
			c.enqueuer.OnAdd(newPod("a", of("web")))
			c.podUpdated(newPod("a", of("web")), newPod("a", of("web"), newer))
			c.enqueuer.OnDelete(newPod("a", of("web")))
		}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names, later := woken(t, sets, tt.event)
				if !slices.Equal(names, tt.want) || !slices.Equal(later, tt.later) {
					t.Errorf("woken now %v and later %v, want %v and %v", names, later, tt.want, tt.later)
				}
			})
		})
	}
}
