package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
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
	gaps    int              // times that changes may have been missed
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

func (h *histories) all() []*history {
	return []*history{h.pods, h.replicaSets, h.deployments, h.nodes, h.namespaces}
}

// run records all types until ctx ends.
func (h *histories) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, one := range h.all() {
		running.Go(func() { one.run(ctx) })
	}
	running.Wait()
}

// run records until ctx ends.
func (h *history) run(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			version = h.list(ctx)
		} else {
			version = h.follow(ctx, version)
		}
		if !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
}

func (h *history) list(ctx context.Context) string {
	list, err := h.source.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return ""
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return ""
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	listed := map[string]bool{}
	for _, o := range objects {
		object := o.(metav1.Object)
		listed[keyOf(object)] = true
		if last := h.last(keyOf(object)); last == nil || last.deleted || last.object.GetResourceVersion() != object.GetResourceVersion() {
			h.add(change{version: number(object.GetResourceVersion()), missed: true, object: object})
		}
	}
	for key := range h.byKey {
		if last := h.last(key); !listed[key] && !last.deleted {
			h.add(change{version: number(accessor.GetResourceVersion()), missed: true, deleted: true, object: last.object})
		}
	}
	if len(h.changes) > len(objects) {
		h.gaps++
	}
	return accessor.GetResourceVersion()
}

// follow watches until the stream ends and returns where to go on; "" if that is too long ago.
func (h *history) follow(ctx context.Context, version string) string {
	stream, err := h.source.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ""
		}
		return version
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			var status apierrors.APIStatus
			if errors.As(apierrors.FromObject(event.Object), &status) && status.Status().Code == http.StatusGone {
				return ""
			}
			return version
		}
		object, ok := event.Object.(metav1.Object)
		if !ok {
			return version
		}
		version = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		h.lock.Lock()
		h.add(change{version: number(version), deleted: event.Type == watch.Deleted, object: object})
		h.lock.Unlock()
	}
	return version
}

// add needs the lock.
func (h *history) add(c change) {
	c.at = time.Now()
	c.object.SetManagedFields(nil)
	key := keyOf(c.object)
	h.byKey[key] = append(h.byKey[key], len(h.changes))
	h.changes = append(h.changes, c)
}

func (h *history) last(key string) *change {
	if at := h.byKey[key]; len(at) > 0 {
		return &h.changes[at[len(at)-1]]
	}
	return nil
}

// all returns every change so far.
func (h *history) all() []change {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Clone(h.changes)
}

func (h *history) of(key string) []change {
	h.lock.Lock()
	defer h.lock.Unlock()
	var changes []change
	for _, i := range h.byKey[key] {
		changes = append(changes, h.changes[i])
	}
	return changes
}

func current[T metav1.Object](h *history, accept func(T) bool) []T {
	h.lock.Lock()
	defer h.lock.Unlock()
	var keys []string
	for key := range h.byKey {
		if last := h.last(key); !last.deleted && accept(last.object.(T)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var objects []T
	for _, key := range keys {
		objects = append(objects, h.last(key).object.(T))
	}
	return objects
}

func keyOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// number orders versions, as clients may since Kubernetes 1.35.
func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// pause reports whether ctx still lasts.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func ready(conditions []corev1.PodCondition) bool {
	return slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
