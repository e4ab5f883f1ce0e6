package podgc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
)

var (
	podsResource  = corev1.SchemeGroupVersion.WithResource("pods")
	nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")
)

// world is a cluster of fakes in a bubble of fake time. Its API server knows UID preconditions and finalizers.
type world struct {
	t      *testing.T
	client *fake.Clientset
	begin  time.Time
	// metrics are those of the latest manager.
	metrics *prometheus.Registry

	pretended atomic.Pointer[pretended] // nil: nodes are those of the client

	lock    sync.Mutex
	deletes map[string]time.Duration // pod: when its first delete was accepted
	marks   map[string]bool          // pods whose status was patched
	count   map[string]int           // verb/resource: requests
	refuse  func(clienttesting.Action) error
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{t: t, client: fake.NewClientset(objects...), begin: time.Now(),
		deletes: map[string]time.Duration{}, marks: map[string]bool{}, count: map[string]int{}}
	w.client.PrependReactor("delete", "pods", w.deletePod)
	w.client.PrependReactor("get", "nodes", w.getNode)
	w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.lock.Lock()
		defer w.lock.Unlock()
		w.count[action.GetVerb()+" "+action.GetResource().Resource]++
		if w.refuse != nil {
			if err := w.refuse(action); err != nil {
				return true, nil, err
			}
		}
		if patch, ok := action.(clienttesting.PatchAction); ok {
			w.marks[patch.GetName()] = true
		}
		return false, nil, nil
	})
	return w
}

func (w *world) deletePod(action clienttesting.Action) (bool, runtime.Object, error) {
	remove := action.(clienttesting.DeleteActionImpl)
	obj, err := w.client.Tracker().Get(podsResource, remove.Namespace, remove.Name)
	if err != nil {
		return true, nil, err
	}
	pod := obj.(*corev1.Pod).DeepCopy()
	options := remove.DeleteOptions
	if p := options.Preconditions; p == nil || p.UID == nil || *p.UID != pod.UID {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), pod.Name, fmt.Errorf("precondition failed: have UID %s", pod.UID))
	}
	if g := options.GracePeriodSeconds; g == nil || *g != 0 {
		w.t.Errorf("delete of %s with grace period %v, want 0", pod.Name, g)
	}
	w.lock.Lock()
	if _, again := w.deletes[pod.Name]; !again {
		w.deletes[pod.Name] = time.Since(w.begin)
	}
	w.lock.Unlock()
	if len(pod.Finalizers) == 0 {
		return true, nil, w.client.Tracker().Delete(podsResource, pod.Namespace, pod.Name)
	}
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, new(int64)
	return true, nil, w.client.Tracker().Update(podsResource, pod, pod.Namespace)
}

// manager starts caches, controller and a term. The function it returns ends them.
func (w *world) manager(threshold int) (c *Controller, stop func()) {
	w.t.Helper()
	store := caches.New(w.client, caches.Config{Name: "test"})
	pods, err := store.Pods()
	if err != nil {
		w.t.Fatal(err)
	}
	nodes, err := store.Nodes()
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := Config{TerminatedPodThreshold: threshold, Quarantine: defaultQuarantine, Period: defaultPeriod, Workers: 4}
	w.metrics = prometheus.NewRegistry()
	c, err = New(cfg, Deps{Client: w.client, Pods: pods, Nodes: nodes, Clock: clock.RealClock{}, Metrics: w.metrics})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(quiet(w.t.Context()))
	store.Start(ctx)
	if err := store.WaitForSync(ctx); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait() // the fake server forgets what happens between a list and its watch
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	synctest.Wait()
	return c, func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		store.Shutdown()
	}
}

// until sleeps until some time after the beginning and for everything to come to rest.
func (w *world) until(d time.Duration) {
	time.Sleep(time.Until(w.begin.Add(d)))
	synctest.Wait()
}

func (w *world) requests(what string) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.count[what]
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	obj, err := w.client.Tracker().Get(podsResource, "default", name)
	w.must(err)
	return obj.(*corev1.Pod).DeepCopy()
}

func (w *world) createPod(pod *corev1.Pod) {
	w.t.Helper()
	w.must(w.client.Tracker().Create(podsResource, pod, pod.Namespace))
}

func (w *world) createNode(name string) {
	w.t.Helper()
	w.must(w.client.Tracker().Create(nodesResource, aNode(name), ""))
}

func (w *world) updateNode(node *corev1.Node) {
	w.t.Helper()
	w.must(w.client.Tracker().Update(nodesResource, node, ""))
}

func (w *world) deleteNode(name string) {
	w.t.Helper()
	w.must(w.client.Tracker().Delete(nodesResource, "", name))
}

// pretend answers live reads of a node, whatever the watch says: with a node, or with nil that there is none.
func (w *world) pretend(node *corev1.Node) {
	w.pretended.Store(&pretended{node})
}

// pretended is what a live read of a node finds; nil nothing.
type pretended struct{ node *corev1.Node }

func (w *world) getNode(action clienttesting.Action) (bool, runtime.Object, error) {
	p := w.pretended.Load()
	switch {
	case p == nil:
		return false, nil, nil
	case p.node == nil:
		return true, nil, apierrors.NewNotFound(nodesResource.GroupResource(), action.(clienttesting.GetAction).GetName())
	}
	return true, p.node, nil
}

func aNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

// aPod is a pod that was created an hour ago.
func aPod(name, node string, phase corev1.PodPhase, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 2, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// terminating makes a pod one that was deleted with a grace period.
func terminating(pod *corev1.Pod) {
	now, grace := metav1.Now(), int64(30)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
}

func finalized(pod *corev1.Pod) { pod.Finalizers = []string{"test.example.org/hold"} }

// quiet keeps errors that a test provokes out of its output.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }
