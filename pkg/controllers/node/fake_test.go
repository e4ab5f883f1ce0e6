package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// api is a fake clientset that keeps resource versions and refuses writes on old ones, and whose requests and watches a test can
// break. What only a real API server does is tested in test/integration/node.
type api struct {
	*fake.Clientset
	lock     sync.Mutex
	versions map[string]int64
	requests []string                 // "verb resource name", without lists and watches of informers
	fail     map[string]error         // by "verb resource", for patches also by "verb resource name"
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

// metadata is a client that lists the metadata of nodes, with the faults of a list of nodes.
func (a *api) metadata() metadata.Interface {
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if refused, _, err := a.react(action); refused {
			return true, nil, err
		}
		all, err := a.Clientset.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return true, nil, err
		}
		list := &metav1.List{ListMeta: all.ListMeta}
		for i := range all.Items {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: all.Items[i].ObjectMeta}})
		}
		return true, list, nil
	})
	return client
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
		if err = cmp.Or(a.fail[key], a.fail[key+" "+name]); err != nil {
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

const (
	notReadyNoExecute    = "not-ready:NoExecute"
	unreachableNoExecute = "unreachable:NoExecute"
)
