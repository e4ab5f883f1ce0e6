package namespace

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/internal/discovery"
)

const (
	watchesPerKey = 10
	watchesAtOnce = 100

	// triggerPause collects deletions that come together into one sync.
	triggerPause = 50 * time.Millisecond
	// triggerInterval bounds the least time between syncs that events bring forward. It grows by a tenth of the time for which events have
	// come: somebody may create the objects again that we delete.
	triggerInterval = time.Second
)

// target is something to be watched because a namespace waits for it.
type target struct {
	resource  schema.GroupVersionResource
	namespace string // empty for cluster-scoped types
	name      string // of one object, empty for all
	version   string // resource version to start from
	changes   bool   // whether changes count, too, and not only deletions
}

// triggers are watches on what namespaces wait for. They only bring the next sync forward: nothing is decided from their events, and a
// namespace without a watch is synced again all the same.
type triggers struct {
	client metadata.Interface
	clock  clock.PassiveClock
	fire   func(key string, pause time.Duration)

	lock    sync.Mutex
	running map[armed]context.CancelFunc
	paces   map[string]pace // by key
	wait    sync.WaitGroup
}

// pace spaces the syncs that events bring forward for one key.
type pace struct {
	first time.Time     // when the first event came; zero: none has
	due   time.Time     // when the last sync was, or the next will be
	rest  time.Duration // between two syncs at least
}

// next returns the pace with the sync that follows an event at now. An event before a sync that is due changes nothing.
func (p pace) next(now time.Time) pace {
	if p.first.IsZero() {
		p.first = now
	}
	if !p.due.After(now) {
		interval := max(p.rest, min(now.Sub(p.first)/10, triggerInterval))
		soon, free := now.Add(triggerPause), p.due.Add(interval)
		p.due = soon
		if free.After(soon) {
			p.due = free
		}
	}
	return p
}

// armed identifies a watch: the version it began at does not matter.
type armed struct {
	key      string
	resource schema.GroupVersionResource
	name     string
}

func newTriggers(client metadata.Interface, clock clock.PassiveClock, fire func(key string, pause time.Duration)) *triggers {
	return &triggers{client: client, clock: clock, fire: fire, running: map[armed]context.CancelFunc{}, paces: map[string]pace{}}
}

// arm makes targets what is watched for key: watches on others end, those that run already go on. They end with ctx, too. rest is the
// least time between syncs that they bring forward.
func (t *triggers) arm(ctx context.Context, key string, targets []target, rest time.Duration) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if len(targets) > 0 {
		p := t.paces[key]
		p.rest = rest
		t.paces[key] = p
	} else {
		delete(t.paces, key)
	}
	wanted := map[armed]target{}
	for _, x := range targets[:min(len(targets), watchesPerKey)] {
		wanted[armed{key, x.resource, x.name}] = x
	}
	for a, cancel := range t.running {
		if _, ok := wanted[a]; !ok && a.key == key {
			cancel()
			delete(t.running, a)
		}
	}
	for a, x := range wanted {
		if _, ok := t.running[a]; ok || len(t.running) >= watchesAtOnce {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		t.running[a] = cancel
		t.wait.Go(func() {
			defer cancel()
			defer t.ended(ctx, a)
			t.watch(ctx, key, x)
		})
	}
}

// ended takes a watch that ended by itself off the list, so that the next sync arms it again.
func (t *triggers) ended(ctx context.Context, a armed) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if ctx.Err() == nil {
		delete(t.running, a)
	}
}

func (t *triggers) watch(ctx context.Context, key string, x target) {
	options := metav1.ListOptions{ResourceVersion: x.version}
	if x.name != "" {
		options.FieldSelector = metav1.ObjectNameField + "=" + x.name
	}
	w, err := t.client.Resource(x.resource).Namespace(x.namespace).Watch(ctx, options)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Watch not possible, looking again by time only", "resource", x.resource, "reason", err)
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-w.ResultChan():
			switch {
			case !ok || event.Type == watch.Error:
				return
			case event.Type == watch.Deleted, event.Type == watch.Modified && x.changes:
				t.fire(key, t.pause(key))
			}
		}
	}
}

// pause is the time from an event to the sync that it brings about.
func (t *triggers) pause(key string) time.Duration {
	t.lock.Lock()
	defer t.lock.Unlock()
	now := t.clock.Now()
	p, known := t.paces[key]
	p = p.next(now)
	if known { // not the late event of a watch that was ended
		t.paces[key] = p
	}
	return p.due.Sub(now)
}

// join waits until every watch has ended. The contexts they were armed with must have.
func (t *triggers) join() { t.wait.Wait() }

// apiServices are cluster-scoped objects of the aggregator, one for each group version.
var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// contentTargets are the types, pods excepted, that objects remain of, and the APIServices of those that failed: they may be
// down and come back. Pods have an informer.
func contentTargets(namespace string, r report) []target {
	var targets []target
	for _, o := range r.outcomes {
		gvr := o.resource.GroupVersionResource
		switch {
		case gvr.GroupResource() == discovery.Pods.GroupResource():
		case o.err != nil:
			targets = append(targets, target{resource: apiServices, name: discovery.ServiceOf(gvr.GroupVersion()), changes: true})
		case o.remaining > 0 && o.resource.Watch:
			targets = append(targets, target{resource: gvr, namespace: namespace, version: o.version})
		}
	}
	return targets
}

// discoveryTargets are the APIServices of the group versions that cannot be discovered.
func discoveryTargets(c discovery.Answer) []target {
	var targets []target
	for _, f := range c.Failing {
		targets = append(targets, target{resource: apiServices, name: f.Service(), changes: true})
	}
	return targets
}
