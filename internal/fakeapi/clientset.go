package fakeapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// Clientset is client-go's fake clientset with resource versions and UIDs as on an API server, and finalizers of
// pods. A test can break requests and watches. A Clientset uses the clock of the test, also in a bubble of fake time.
//
// Changes through [Clientset.Put], [Clientset.Remove] and the Tracker are no requests. A reactor that a test prepends
// comes first; requests of that reactor are not counted.
type Clientset struct {
	*fake.Clientset
	Begin   time.Time // of the creation
	t       testing.TB
	tracker clienttesting.ObjectTracker

	lock     sync.Mutex
	versions map[string]int64
	requests []Request
	broken   map[string]error // by "verb resource" or "verb resource name"
	held     map[string]bool
	hook     func() // called after each write
	cut      map[string]chan struct{}
	streams  map[watch.Interface]bool // open watches
}

type Request struct {
	What      string // "verb resource name" or "verb resource/subresource name"
	Namespace string // only of requests to Types
	Name      string // empty for lists
	At        time.Time
	Err       error                // nil: accepted; only of requests to a Clientset
	Delete    metav1.DeleteOptions // of a delete
	Body      []byte               // only of requests to Types
}

// NewClientset returns a clientset that knows objects.
func NewClientset(t testing.TB, objects ...runtime.Object) *Clientset {
	c := &Clientset{Clientset: fake.NewClientset(), Begin: time.Now(), t: t, tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		versions: map[string]int64{}, broken: map[string]error{}, held: map[string]bool{}, cut: map[string]chan struct{}{}, streams: map[watch.Interface]bool{}}
	for _, obj := range objects {
		NoError(t, c.tracker.Add(obj))
	}
	c.PrependReactor("*", "*", c.React)
	c.PrependWatchReactor("*", c.openWatch)
	return c
}

// React handles a request, for reactors of tests, for example a reactor that drops the response.
func (c *Clientset) React(action clienttesting.Action) (bool, runtime.Object, error) {
	r := Request{Name: nameOf(action), At: time.Now()}
	key := describeAction(action)
	r.What = key + " " + r.Name
	if remove, ok := action.(clienttesting.DeleteActionImpl); ok {
		r.Delete = remove.DeleteOptions
	}
	c.lock.Lock()
	r.Err = cmp.Or(c.broken[key], c.broken[r.What])
	c.lock.Unlock()
	handled, obj := r.Err != nil, runtime.Object(nil)
	if !handled {
		for isWrite(r.What) && c.hasBacklog() {
			goruntime.Gosched()
		}
		handled, obj, r.Err = c.handleAction(action, r.Name)
	}
	c.lock.Lock()
	c.requests = append(c.requests, r)
	hook := c.hook
	c.lock.Unlock()
	if hook != nil && r.Err == nil && isWrite(r.What) {
		hook()
	}
	return handled, obj, r.Err
}

func nameOf(action clienttesting.Action) string {
	switch action := action.(type) {
	case interface{ GetName() string }:
		return action.GetName()
	case interface{ GetObject() runtime.Object }:
		return action.GetObject().(metav1.Object).GetName()
	}
	return ""
}

func isWrite(what string) bool {
	verb, _, _ := strings.Cut(what, " ")
	return slices.Contains([]string{"create", "update", "patch", "delete"}, verb)
}

// Tracker holds the objects.
func (c *Clientset) Tracker() clienttesting.ObjectTracker { return c.tracker }

func (c *Clientset) handleAction(action clienttesting.Action, name string) (handled bool, obj runtime.Object, err error) {
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		created := a.Object.(metav1.Object)
		c.setNextVersion(action, created)
		if created.GetUID() == "" {
			created.SetUID(types.UID(fmt.Sprintf("uid-%s-%s", created.GetName(), created.GetResourceVersion())))
		}
		created.SetGeneration(max(1, created.GetGeneration()))
	case clienttesting.UpdateActionImpl:
		sent := a.Object.(metav1.Object)
		if err := c.checkPreconditions(action, name, sent.GetResourceVersion(), sent.GetUID()); err != nil {
			return true, nil, err
		}
		c.setNextVersion(action, sent)
	case clienttesting.PatchActionImpl:
		if a.PatchType == types.JSONPatchType {
			var next metav1.ObjectMeta
			c.setNextVersion(action, &next)
			a.Patch = fmt.Appendf(bytes.TrimSuffix(a.Patch, []byte("]")), `,{"op":"add","path":"/metadata/resourceVersion","value":%q}]`, next.ResourceVersion)
			_, patched, err := clienttesting.ObjectReaction(c.Tracker())(a)
			if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // a test of the patch failed
				err = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", a.GetResource().GroupResource(), name, err.Error(), 0, false)
			}
			return true, patched, err
		}
		var sent struct {
			metav1.ObjectMeta `json:"metadata"`
		}
		var body map[string]any
		if err := errors.Join(json.Unmarshal(a.Patch, &sent), json.Unmarshal(a.Patch, &body)); err != nil {
			return true, nil, err
		}
		if err := c.checkPreconditions(action, name, sent.ResourceVersion, sent.UID); err != nil {
			return true, nil, err
		}
		c.setNextVersion(action, &sent)
		about, _ := body["metadata"].(map[string]any)
		if about == nil {
			about = map[string]any{}
		}
		about["resourceVersion"], body["metadata"] = sent.ResourceVersion, about
		a.Patch, _ = json.Marshal(body)
		action = a
	case clienttesting.DeleteActionImpl:
		if action.GetResource().Resource == "pods" {
			return true, nil, c.deletePod(a)
		}
	}
	return clienttesting.ObjectReaction(c.Tracker())(action)
}

// SetListVersions gives lists of a resource the highest resourceVersion of their objects. "*" stands for all resources.
func (c *Clientset) SetListVersions(resource string) {
	c.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, list, err := c.React(action)
		if err == nil {
			list.(metav1.ListInterface).SetResourceVersion(highestVersion(list))
		}
		return handled, list, err
	})
}

// highestVersion returns the highest resourceVersion of the objects of a list, at least 1.
func highestVersion(list runtime.Object) string {
	highest := 1
	_ = meta.EachListItem(list, func(obj runtime.Object) error {
		version, err := strconv.Atoi(obj.(metav1.Object).GetResourceVersion())
		highest = max(highest, version)
		return err
	})
	return strconv.Itoa(highest)
}

func (c *Clientset) setNextVersion(action clienttesting.Action, obj metav1.Object) {
	c.lock.Lock()
	defer c.lock.Unlock()
	resource := action.GetResource().Resource
	c.versions[resource] = max(c.versions[resource], 1) + 1
	obj.SetResourceVersion(fmt.Sprint(c.versions[resource]))
}

func (c *Clientset) checkPreconditions(action clienttesting.Action, name, version string, uid types.UID) error {
	obj, err := c.Tracker().Get(action.GetResource(), action.GetNamespace(), name)
	if err != nil {
		return err
	}
	found, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if version != "" && version != found.GetResourceVersion() || uid != "" && uid != found.GetUID() {
		return apierrors.NewConflict(action.GetResource().GroupResource(), name, errors.New("the object has been modified"))
	}
	return nil
}

// deletePod removes a pod without grace and finalizers. Any other stays and is terminating.
func (c *Clientset) deletePod(action clienttesting.DeleteActionImpl) error {
	var uid types.UID
	if p := action.DeleteOptions.Preconditions; p != nil && p.UID != nil {
		uid = *p.UID
	}
	if err := c.checkPreconditions(action, action.Name, "", uid); err != nil {
		return err
	}
	obj, err := c.Tracker().Get(action.Resource, action.Namespace, action.Name)
	if err != nil {
		return err
	}
	pod, grace := obj.(*corev1.Pod).DeepCopy(), action.DeleteOptions.GracePeriodSeconds
	if len(pod.Finalizers) == 0 && grace != nil && *grace == 0 {
		return c.Tracker().Delete(action.Resource, action.Namespace, action.Name)
	}
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, grace
	return c.Tracker().Update(action.Resource, pod, action.Namespace)
}

// openWatch passes events on while the resource is not held.
func (c *Clientset) openWatch(action clienttesting.Action) (bool, watch.Interface, error) {
	resource := action.GetResource().Resource
	cut := c.cutOf(resource)
	select {
	case <-cut:
		return true, nil, errors.New("watches are cut")
	default:
	}
	inner, err := c.Tracker().Watch(action.GetResource(), action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
	if err != nil {
		return true, nil, err
	}
	out := make(chan watch.Event)
	outer := watch.NewProxyWatcher(out)
	c.lock.Lock()
	c.streams[inner] = true
	c.lock.Unlock()
	go func() {
		defer inner.Stop()
		defer close(out)
		defer c.removeStream(inner)
		c.relayEvents(resource, inner.ResultChan(), out, outer.StopChan(), cut)
	}()
	return true, outer, nil
}

func (c *Clientset) removeStream(stream watch.Interface) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.streams, stream)
}

// hasBacklog reports whether a watch has fallen behind: client-go's panics when 100 events are waiting.
func (c *Clientset) hasBacklog() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	for stream := range c.streams {
		if len(stream.ResultChan()) > 50 {
			return true
		}
	}
	return false
}

func (c *Clientset) relayEvents(resource string, in <-chan watch.Event, out chan<- watch.Event, stop, cut <-chan struct{}) {
	var pending []watch.Event
	for {
		var send chan<- watch.Event
		var first watch.Event
		var again <-chan time.Time
		if len(pending) > 0 {
			first = pending[0]
			if send = out; c.isHeld(resource) {
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

func (c *Clientset) isHeld(resource string) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.held[resource]
}

func (c *Clientset) cutOf(resource string) chan struct{} {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.cut[resource] == nil {
		c.cut[resource] = make(chan struct{})
	}
	return c.cut[resource]
}

// CutWatches ends the watches of a resource and rejects new watches until RestoreWatches.
func (c *Clientset) CutWatches(resource string) { close(c.cutOf(resource)) }

// RestoreWatches ends [Clientset.CutWatches].
func (c *Clientset) RestoreWatches(resource string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.cut, resource)
}

// Freeze holds the watch events of a resource, or delivers them.
func (c *Clientset) Freeze(resource string, frozen bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.held[resource] = frozen
}

// Break makes requests fail with err, given as "verb resource" or "verb resource name". nil repairs requests.
func (c *Clientset) Break(err error, keys ...string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, key := range keys {
		c.broken[key] = err
	}
}

// LoseResponse executes the next request of a verb about a resource, and the client gets an error. lost becomes true.
func (c *Clientset) LoseResponse(verb, resource string) (lost *atomic.Bool) {
	lost = &atomic.Bool{}
	c.PrependReactor(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if lost.Swap(true) {
			return false, nil, nil
		}
		if _, _, err := c.React(action); err != nil {
			c.t.Errorf("%s %s was not executed: %v", verb, resource, err)
		}
		return true, nil, errors.New("connection reset")
	})
	return lost
}

// After calls hook after each accepted write, before the response. nil removes the hook.
func (c *Clientset) After(hook func()) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.hook = hook
}

// Requests returns the requests so far that begin with prefix, including rejected requests, in order.
func (c *Clientset) Requests(prefix string) []Request {
	c.lock.Lock()
	defer c.lock.Unlock()
	var found []Request
	for _, r := range c.requests {
		if strings.HasPrefix(r.What, prefix) {
			found = append(found, r)
		}
	}
	return found
}

func (c *Clientset) Count(prefix string) int { return len(c.Requests(prefix)) }

// Writes returns the number of writes, including rejected writes.
func (c *Clientset) Writes() int {
	return len(slices.DeleteFunc(c.Requests(""), func(r Request) bool { return !isWrite(r.What) }))
}

// Accepted returns for each object the time from the creation of the clientset to the first accepted request with the
// prefix.
func (c *Clientset) Accepted(prefix string) map[string]time.Duration {
	first := map[string]time.Duration{}
	for _, r := range c.Requests(prefix) {
		if _, again := first[r.Name]; !again && r.Err == nil {
			first[r.Name] = r.At.Sub(c.Begin)
		}
	}
	return first
}

// Put creates or replaces an object without a request.
func (c *Clientset) Put(obj runtime.Object) {
	c.t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	NoError(c.t, err)
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	namespace := obj.(metav1.Object).GetNamespace()
	if err = c.Tracker().Update(resource, obj, namespace); apierrors.IsNotFound(err) {
		err = c.Tracker().Create(resource, obj, namespace)
	}
	NoError(c.t, err)
}

// Remove removes an object of the core group without a request.
func (c *Clientset) Remove(resource, namespace, name string) {
	c.t.Helper()
	NoError(c.t, c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource(resource), namespace, name))
}

func (c *Clientset) Pod(name string) *corev1.Pod {
	c.t.Helper()
	obj, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceDefault, name)
	NoError(c.t, err)
	return obj.(*corev1.Pod).DeepCopy()
}

func (c *Clientset) Node(name string) *corev1.Node {
	c.t.Helper()
	obj, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", name)
	NoError(c.t, err)
	return obj.(*corev1.Node).DeepCopy()
}
