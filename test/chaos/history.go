package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type change struct {
	version int64 // resourceVersion
	at      time.Time
	deleted bool // then object is the last state
	missed  bool // found by a list: earlier changes may be unknown
	object  metav1.Object
}

// history records all changes of the objects of a type, from a watch without faults.
type history struct {
	resource string
	source   *cache.ListWatch

	lock    sync.Mutex
	changes []change         // in order of version
	byKey   map[string][]int // namespace/name → positions
}

// histories are the types that are judged.
type histories struct {
	pods, replicaSets, deployments, nodes, namespaces *history
}

func newHistories(client kubernetes.Interface) *histories {
	of := func(resource string, from rest.Interface) *history {
		return &history{
			resource: resource, byKey: map[string][]int{},
			source: cache.NewListWatchFromClient(from, resource, metav1.NamespaceAll, fields.Everything()),
		}
	}
	core, apps := client.CoreV1().RESTClient(), client.AppsV1().RESTClient()
	return &histories{
		pods: of("pods", core), replicaSets: of("replicasets", apps), deployments: of("deployments", apps), nodes: of("nodes", core), namespaces: of("namespaces", core),
	}
}

func (h *histories) allTypes() []*history {
	return []*history{h.pods, h.replicaSets, h.deployments, h.nodes, h.namespaces}
}

// recordAll records all types until ctx ends.
func (h *histories) recordAll(ctx context.Context) {
	var running sync.WaitGroup
	for _, one := range h.allTypes() {
		record := func(deleted bool) func(any) error {
			return func(o any) error { one.addChange(change{deleted: deleted, object: o.(metav1.Object)}); return nil }
		}
		store := &cache.FakeCustomStore{AddFunc: record(false), UpdateFunc: record(false), DeleteFunc: record(true), ReplaceFunc: one.compareList}
		reflector := cache.NewReflectorWithOptions(one.source, nil, store, cache.ReflectorOptions{
			// The simulated kubelets and the scheduler read the histories, so they must follow at once.
			Backoff: &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1, Steps: 1},
		})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
	running.Wait()
}

func (h *history) compareList(objects []any, version string) error {
	listed := map[string]bool{}
	for _, o := range objects {
		object := o.(metav1.Object)
		listed[keyOf(object)] = true
		if last := h.lastChange(keyOf(object)); last == nil || last.deleted || last.object.GetResourceVersion() != object.GetResourceVersion() {
			h.addChange(change{missed: true, object: object})
		}
	}
	for key := range h.byKey {
		if last := h.lastChange(key); !listed[key] && !last.deleted {
			h.addChange(change{version: parseVersion(version), missed: true, deleted: true, object: last.object})
		}
	}
	return nil
}

func (h *history) addChange(c change) {
	c.at, c.version = time.Now(), cmp.Or(c.version, parseVersion(c.object.GetResourceVersion()))
	c.object.SetManagedFields(nil)
	h.lock.Lock()
	defer h.lock.Unlock()
	key := keyOf(c.object)
	h.byKey[key] = append(h.byKey[key], len(h.changes))
	h.changes = append(h.changes, c)
}

// lastChange is called by the only writer or with the lock.
func (h *history) lastChange(key string) *change {
	if at := h.byKey[key]; len(at) > 0 {
		return &h.changes[at[len(at)-1]]
	}
	return nil
}

// allChanges returns every change so far.
func (h *history) allChanges() []change {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Clone(h.changes)
}

func (h *history) changesOf(key string) []change {
	h.lock.Lock()
	defer h.lock.Unlock()
	var changes []change
	for _, i := range h.byKey[key] {
		changes = append(changes, h.changes[i])
	}
	return changes
}

// liveObjects returns the objects that accept accepts, ordered by key.
func liveObjects[T metav1.Object](h *history, accept func(T) bool) []T {
	h.lock.Lock()
	defer h.lock.Unlock()
	var objects []T
	for key := range h.byKey {
		if last := h.lastChange(key); !last.deleted && accept(last.object.(T)) {
			objects = append(objects, last.object.(T))
		}
	}
	slices.SortFunc(objects, func(a, b T) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	return objects
}

func keyOf(o metav1.Object) string { return cache.MetaObjectToName(o).String() }

// parseVersion parses a version for comparison, as clients may since Kubernetes 1.35.
func parseVersion(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64) // 0 if it is no number
	return n
}

func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
