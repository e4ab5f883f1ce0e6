package tainteviction

import (
	"context"
	"fmt"
	"sync"
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

// world is a cluster of fakes in a bubble of fake time, which begins at a whole second. Its API server keeps a deleted pod as
// terminating, as one does whose kubelet is silent, and knows UID preconditions.
type world struct {
	t        *testing.T
	client   *fake.Clientset
	registry *prometheus.Registry
	begin    time.Time
	workers  int

	lock    sync.Mutex
	deletes map[string]time.Duration // pod: when its first delete was accepted
	count   map[string]int           // verb/resource: requests
	events  []string
	refuse  func(clienttesting.Action) error // nil: nothing is refused
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{t: t, client: fake.NewClientset(objects...), begin: time.Now(), workers: 4, deletes: map[string]time.Duration{}, count: map[string]int{}}
	w.client.PrependReactor("delete", "pods", w.deletePod)
	w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.lock.Lock()
		defer w.lock.Unlock()
		w.count[action.GetVerb()+" "+action.GetResource().Resource]++
		if w.refuse != nil {
			if err := w.refuse(action); err != nil {
				return true, nil, err
			}
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
	if p := remove.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != pod.UID {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), pod.Name, fmt.Errorf("precondition failed: have UID %s", pod.UID))
	}
	if remove.DeleteOptions.GracePeriodSeconds != nil {
		w.t.Errorf("delete of %s sets a grace period", pod.Name)
	}
	w.lock.Lock()
	if _, again := w.deletes[pod.Name]; !again {
		w.deletes[pod.Name] = time.Since(w.begin)
	}
	w.lock.Unlock()
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	return true, nil, w.client.Tracker().Update(podsResource, pod, pod.Namespace)
}

// manager starts a process: caches, controller and a term. The function it returns ends it.
func (w *world) manager(window time.Duration) (stop func()) {
	w.t.Helper()
	c, stopCaches := w.standby(window)
	endTerm := w.run(c)
	return func() {
		endTerm()
		stopCaches()
	}
}

// standby starts caches and a controller without a term.
func (w *world) standby(window time.Duration) (c *Controller, stop func()) {
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
	w.registry = prometheus.NewRegistry()
	c, err = New(Config{Workers: w.workers, TrustWindow: window}, Deps{
		Client: w.client, Pods: pods, Nodes: nodes, Recorder: w, Clock: clock.RealClock{}, Metrics: w.registry,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(quiet(w.t.Context()))
	store.Start(ctx)
	if err := store.WaitForSync(ctx); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait() // the fake server forgets what happens between a list and its watch
	return c, func() {
		cancel()
		store.Shutdown()
	}
}

// run begins a term. The function it returns ends it.
func (w *world) run(c *Controller) (end func()) {
	ctx, cancel := context.WithCancel(quiet(w.t.Context()))
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// until sleeps until some time after the beginning and for everything to come to rest.
func (w *world) until(d time.Duration) {
	time.Sleep(time.Until(w.begin.Add(d)))
	synctest.Wait()
}

func (w *world) deletedAt(pod string) (time.Duration, bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	d, ok := w.deletes[pod]
	return d, ok
}

func (w *world) requests(what string) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.count[what]
}

func (w *world) setRefuse(refuse func(clienttesting.Action) error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.refuse = refuse
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	obj, err := w.client.Tracker().Get(podsResource, "default", name)
	if err != nil {
		w.t.Fatal(err)
	}
	return obj.(*corev1.Pod).DeepCopy()
}

// update changes a pod as somebody else would.
func (w *world) update(name string, edit func(*corev1.Pod)) {
	w.t.Helper()
	pod := w.pod(name)
	edit(pod)
	w.put(pod)
}

func (w *world) put(pod *corev1.Pod) {
	w.t.Helper()
	if err := w.client.Tracker().Update(podsResource, pod, pod.Namespace); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(pod *corev1.Pod) {
	w.t.Helper()
	if err := w.client.Tracker().Create(podsResource, pod, pod.Namespace); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(pod string) {
	w.t.Helper()
	if err := w.client.Tracker().Delete(podsResource, "default", pod); err != nil {
		w.t.Fatal(err)
	}
}

// taint replaces the taints of node1.
func (w *world) taint(taints ...corev1.Taint) {
	w.t.Helper()
	w.node(func(n *corev1.Node) { n.Spec.Taints = taints })
}

func (w *world) node(edit func(*corev1.Node)) {
	w.t.Helper()
	obj, err := w.client.Tracker().Get(nodesResource, "", "node1")
	if err != nil {
		w.t.Fatal(err)
	}
	node := obj.(*corev1.Node).DeepCopy()
	edit(node)
	if err := w.client.Tracker().Update(nodesResource, node, ""); err != nil {
		w.t.Fatal(err)
	}
}

// Event, Eventf and AnnotatedEventf make world an event recorder.
func (w *world) Event(obj runtime.Object, kind, reason, message string) {
	w.Eventf(obj, kind, reason, "%s", message)
}

func (w *world) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	ref := obj.(*corev1.ObjectReference)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %s %s %s %s %s", ref.APIVersion, ref.Kind, ref.Namespace+"/"+ref.Name, ref.UID, kind, reason, fmt.Sprintf(format, args...)))
}

func (w *world) AnnotatedEventf(obj runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	w.Eventf(obj, kind, reason, format, args...)
}

func (w *world) told() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.events
}

func marking(pod string) string {
	return fmt.Sprintf("v1 Pod default/%[1]s uid-%[1]s Normal TaintManagerEviction Marking for deletion Pod default/%[1]s", pod)
}

func cancelling(pod string) string {
	return fmt.Sprintf("v1 Pod default/%[1]s uid-%[1]s Normal TaintManagerEviction Cancelling deletion of Pod default/%[1]s", pod)
}

// node1 is the node of all pods here.
func node1(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "uid-node1"},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// aPod is a running pod that was created on node1 an hour ago.
func aPod(name string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 3, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: "node1", Tolerations: tolerations},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// now returns a taint put there at this moment; ago one put there before it.
func nowTaint(key string) corev1.Taint { return agoTaint(key, 0) }

func agoTaint(key string, ago time.Duration) corev1.Taint {
	added := metav1.NewTime(time.Now().Add(-ago))
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
}

// quiet keeps errors that a test provokes out of its output.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }
