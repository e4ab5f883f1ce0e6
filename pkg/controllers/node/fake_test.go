package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
)

// api is a fake clientset that keeps resource versions and refuses writes on old ones, and whose requests and watches a test can
// break. What only a real API server does is tested in test/integration/node.
type api struct {
	*fake.Clientset
	lock     sync.Mutex
	versions map[string]int64
	requests []string                 // "verb resource name", without lists and watches of informers
	fail     map[string]error         // by "verb resource"
	hold     map[string]bool          // resources whose watch events are kept back
	hook     func()                   // called after each write, with the lock held
	cut      map[string]chan struct{} // resources whose watches were cut and cannot be opened again; closed when that happens
}

func newAPI() *api {
	a := &api{Clientset: fake.NewClientset(), versions: map[string]int64{}, fail: map[string]error{}, hold: map[string]bool{}, cut: map[string]chan struct{}{}}
	a.PrependReactor("*", "*", a.react)
	a.PrependWatchReactor("*", a.watch)
	return a
}

func resourceOf(action clienttesting.Action) string {
	if sub := action.GetSubresource(); sub != "" {
		return action.GetResource().Resource + "/" + sub
	}
	return action.GetResource().Resource
}

func (a *api) react(action clienttesting.Action) (bool, runtime.Object, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	key := action.GetVerb() + " " + resourceOf(action)
	name := ""
	if named, ok := action.(interface{ GetName() string }); ok {
		name = named.GetName()
	}
	var err error
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		name = action.Object.(metav1.Object).GetName()
		a.stamp(action.GetResource().Resource, action.Object)
		a.requests = append(a.requests, key+" "+name)
		return a.pass(action)
	case clienttesting.UpdateActionImpl:
		name = action.Object.(metav1.Object).GetName()
		a.requests = append(a.requests, key+" "+name)
		if err = a.fail[key]; err == nil {
			err = a.check(action, name, action.Object.(metav1.Object).GetResourceVersion(), action.Object.(metav1.Object).GetUID())
		}
		if err != nil {
			return true, nil, err
		}
		a.stamp(action.GetResource().Resource, action.Object)
		return a.pass(action)
	case clienttesting.PatchActionImpl:
		a.requests = append(a.requests, key+" "+name)
		if err = a.fail[key]; err != nil {
			return true, nil, err
		}
		return a.patch(action)
	}
	a.requests = append(a.requests, key+" "+name)
	return a.fail[key] != nil, nil, a.fail[key]
}

func (a *api) pass(action clienttesting.Action) (bool, runtime.Object, error) {
	handled, obj, err := clienttesting.ObjectReaction(a.Tracker())(action)
	if a.hook != nil {
		a.hook()
	}
	return handled, obj, err
}

// after calls hook after each write, with the lock held.
func (a *api) after(hook func()) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.hook = hook
}

func (a *api) stamp(resource string, obj runtime.Object) {
	if a.versions[resource] == 0 {
		a.versions[resource] = 1
	}
	a.versions[resource]++
	obj.(metav1.Object).SetResourceVersion(fmt.Sprint(a.versions[resource]))
}

func (a *api) check(action clienttesting.Action, name, version string, uid types.UID) error {
	obj, err := a.Tracker().Get(action.GetResource(), action.GetNamespace(), name)
	if err != nil {
		return err
	}
	current, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if version != "" && version != current.GetResourceVersion() || uid != "" && uid != current.GetUID() {
		return apierrors.NewConflict(action.GetResource().GroupResource(), name, errors.New("the object has been modified"))
	}
	return nil
}

func (a *api) patch(action clienttesting.PatchActionImpl) (bool, runtime.Object, error) {
	var body map[string]any
	if err := json.Unmarshal(action.Patch, &body); err != nil {
		return true, nil, err
	}
	about := body["metadata"].(map[string]any)
	if err := a.check(action, action.Name, about["resourceVersion"].(string), types.UID(about["uid"].(string))); err != nil {
		return true, nil, err
	}
	resource := action.GetResource().Resource
	a.versions[resource]++
	about["resourceVersion"] = fmt.Sprint(a.versions[resource])
	action.Patch, _ = json.Marshal(body)
	return a.pass(action)
}

// watch keeps events back while the resource is held.
func (a *api) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	opts := action.(clienttesting.WatchActionImpl).ListOptions
	cut := a.cutOf(action.GetResource().Resource)
	select {
	case <-cut:
		return true, nil, errOutage
	default:
	}
	inner, err := a.Tracker().Watch(action.GetResource(), action.GetNamespace(), opts)
	if err != nil {
		return true, nil, err
	}
	out := make(chan watch.Event)
	outer := watch.NewProxyWatcher(out)
	go func() {
		defer inner.Stop()
		defer close(out)
		a.relay(action.GetResource().Resource, inner.ResultChan(), out, outer.StopChan(), cut)
	}()
	return true, outer, nil
}

func (a *api) cutOf(resource string) chan struct{} {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.cut[resource] == nil {
		a.cut[resource] = make(chan struct{})
	}
	return a.cut[resource]
}

// cutWatches ends the watches of a resource and refuses new ones until they are restored.
func (a *api) cutWatches(resource string) { close(a.cutOf(resource)) }

func (a *api) restoreWatches(resource string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	delete(a.cut, resource)
}

// relay passes events on; those of a held resource wait, without limit.
func (a *api) relay(resource string, in <-chan watch.Event, out chan<- watch.Event, stop, cut <-chan struct{}) {
	var pending []watch.Event
	for {
		var send chan<- watch.Event
		var first watch.Event
		var again <-chan time.Time
		if len(pending) > 0 {
			first = pending[0]
			if send = out; a.isHeld(resource) {
				send, again = nil, time.After(100*time.Millisecond)
			}
		}
		select {
		case e := <-in:
			pending = append(pending, e)
		case send <- first:
			pending = pending[1:]
		case <-again:
		case <-cut:
			return
		case <-stop:
			return
		}
	}
}

func (a *api) isHeld(resource string) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.hold[resource]
}

// freeze keeps back the watch events of a resource, or lets them go.
func (a *api) freeze(resource string, frozen bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.hold[resource] = frozen
}

// breakDown lets requests fail with err, given as "verb resource"; nil repairs them.
func (a *api) breakDown(err error, keys ...string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.breakDownLocked(err, keys...)
}

func (a *api) breakDownLocked(err error, keys ...string) {
	for _, key := range keys {
		a.fail[key] = err
	}
}

// count counts the requests made so far that begin with prefix.
func (a *api) count(prefix string) int {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.countLocked(prefix)
}

func (a *api) countLocked(prefix string) int {
	n := 0
	for _, r := range a.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// writes counts the requests that would change something.
func (a *api) writes() int {
	return a.count("create") + a.count("update") + a.count("patch") + a.count("delete")
}

// bench is a controller on a fake API in a bubble of fake time.
type bench struct {
	t *testing.T
	*api
	controller *Controller
	caches     *caches.Caches
	events     *record.FakeRecorder
	start      time.Time
	stopCaches context.CancelFunc
	stopTerm   func()
}

// defaults are the defaults of kube-controller-manager v1.37.
func defaults() Config {
	return Config{
		MonitorPeriod: 5 * time.Second, MonitorGracePeriod: 50 * time.Second, StartupGracePeriod: 60 * time.Second,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeClusterSizeThreshold: 50, UnhealthyZoneThreshold: 0.55,
		Workers: 4, PodWorkers: 4,
	}
}

// inBubble runs a test in fake time. Objects given to it exist before the caches start.
func inBubble(t *testing.T, cfg Config, objects []runtime.Object, run func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, api: newAPI(), events: record.NewFakeRecorder(10000), start: time.Now()}
		for _, obj := range objects {
			b.create(obj)
		}
		b.caches = caches.New(b.api, caches.Config{LeaseNamespaces: []string{corev1.NamespaceNodeLease}})
		nodes, err1 := b.caches.Nodes()
		pods, err2 := b.caches.Pods()
		leases, err3 := b.caches.Leases()
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		var err error
		b.controller, err = New(cfg, Deps{
			Client: b.api, Nodes: nodes, Pods: pods, Leases: leases, Recorder: b.events,
			Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.caches.Start(ctx)
		if err := b.caches.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
		b.stopCaches = cancel
		run(b)
		b.endTerm()
		cancel()
		b.caches.Shutdown()
	})
}

// term starts a term.
func (b *bench) term() {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.controller.Run(ctx); err != nil {
			b.t.Errorf("Run = %v", err)
		}
	}()
	b.stopTerm = func() {
		cancel()
		<-done
	}
	synctest.Wait()
}

func (b *bench) endTerm() {
	if b.stopTerm != nil {
		b.stopTerm()
		b.stopTerm = nil
	}
	synctest.Wait()
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) create(obj runtime.Object) {
	b.t.Helper()
	var err error
	ctx := b.t.Context()
	switch o := obj.(type) {
	case *corev1.Node:
		_, err = b.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = b.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *coordinationv1.Lease:
		_, err = b.CoordinationV1().Leases(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("create %T: not known here", obj)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) node(name string) *corev1.Node {
	b.t.Helper()
	node, err := b.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return node
}

func (b *bench) pod(name string) *corev1.Pod {
	b.t.Helper()
	pod, err := b.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

// renew plays a kubelet that renews its Lease.
func (b *bench) renew(names ...string) {
	b.t.Helper()
	leases := b.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for _, name := range names {
		lease, err := leases.Get(b.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if _, err := leases.Update(b.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			b.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// renewFor lets kubelets renew every 10 s for some time.
func (b *bench) renewFor(d time.Duration, names ...string) {
	b.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		b.renew(names...)
		b.pass(min(leaseInterval, time.Until(end)))
	}
}

// edit changes a node as somebody else would.
func (b *bench) edit(name string, change func(*corev1.Node)) {
	b.t.Helper()
	node := b.node(name)
	change(node)
	if _, err := b.CoreV1().Nodes().Update(b.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// post plays a kubelet that posts its Ready condition.
func (b *bench) post(name string, status corev1.ConditionStatus) {
	b.t.Helper()
	b.edit(name, func(node *corev1.Node) { setReady(node, status, time.Now()) })
}

// drainEvents returns the events so far and forgets them.
func (b *bench) drainEvents() []string {
	var all []string
	for {
		select {
		case e := <-b.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// Objects.

func setReady(node *corev1.Node, status corev1.ConditionStatus, at time.Time) {
	c := condition(node, corev1.NodeReady)
	if c == nil {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady})
		c = condition(node, corev1.NodeReady)
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(at)
	}
	c.Status, c.LastHeartbeatTime, c.Reason, c.Message = status, metav1.NewTime(at), "Kubelet", "from the kubelet"
}

// aNode is a node of a zone with a Ready status; an empty one leaves the condition out.
func aNode(name, zone string, ready corev1.ConditionStatus, edits ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{},
		CreationTimestamp: metav1.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), // a year before the bubble's clock starts
	}}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion] = zone, "region"
	}
	if ready != "" {
		setReady(node, ready, node.CreationTimestamp.Time)
	}
	for _, edit := range edits {
		edit(node)
	}
	return node
}

func aLease(name string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name, UID: types.UID("lease-" + name)},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// aPod is a pod on a node that its kubelet calls ready.
func aPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "Up", Message: "and running"},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		}},
	}
}

func podReady(pod *corev1.Pod) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// hasTaint reports whether a node has a taint, given as key:effect without the common prefix of the keys.
func hasTaint(node *corev1.Node, taint string) bool {
	for _, t := range node.Spec.Taints {
		if strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect) == taint {
			return true
		}
	}
	return false
}

const (
	notReadyNoExecute    = "not-ready:NoExecute"
	unreachableNoExecute = "unreachable:NoExecute"
)
