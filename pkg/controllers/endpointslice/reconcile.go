package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	endpointslicemetrics "k8s.io/endpointslice/metrics"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// Values of upstream for the label result of its metric of syncs.
const (
	syncSuccess = "success"
	syncStale   = "stale"
	syncError   = "error"
)

// state is the state of one Service during a term.
type state struct {
	verified   bool      // slices were read live in this term
	uncertain  bool      // the cache may lack a write with unknown outcome
	createName string    // of a create with unknown outcome, repeated by the next create
	staleSince time.Time // since when the cache lacks known slices; zero if none is missing
}

// reconcile brings the slices of one Service in line with its pods.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	t, now := c.term.Load(), c.clock.Now()

	// 1. Read the versions before the objects: a later read could return a version newer than the objects.
	at := controller.VersionsOf(c.slices)
	podsCurrent := t.pods.ReachedBy(controller.VersionsOf(c.pods))

	// 2. Read the Service. The garbage collector deletes the slices of a Service that is gone.
	service, ok := c.services.Get(key)
	if !ok {
		t.forget(key)
		return controller.Result{}, nil
	}
	if !selectsPods(service) {
		return controller.Result{}, nil
	}
	st := t.states.For(key, service.UID)

	// 3. Read the slices. Wait until the cache shows all slices that this process knows, but not for ever: the cache
	// never shows a slice that is created and deleted between two lists.
	existing, err := c.cachedSlices(key)
	if err != nil {
		return controller.Result{}, err
	}
	st.observe(t.tracker.StaleSlices(service, existing), existing, now)
	overdue := !st.staleSince.IsZero() && now.Sub(st.staleSince) >= controller.ConsistencyTimeout
	if !st.staleSince.IsZero() && !overdue {
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues(syncStale).Inc()
		return controller.Result{RequeueAfter: controller.ConsistencyRecheck}, nil
	}

	// 4. Read the pods, and let the library write the slices. If the cache may lack slices, a write is withheld
	// until the slices have been read live. The same holds for pods from before the term. A Service that needs no write
	// needs no live read.
	pods := c.selectedPods(service)
	trigger := t.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	reconcile := func(withhold bool) (*attempt, error) {
		a := newAttempt(ctx, st, existing, withhold)
		t.writer.attempts.Store(key, a)
		defer t.writer.attempts.Delete(key)
		return a, t.reconciler.Reconcile(libraryLogger(ctx), service, pods, existing, trigger)
	}
	a := &attempt{}
	if !overdue {
		a, err = reconcile(!podsCurrent || st.uncertain || !st.verified && !t.baseline.ReachedBy(at))
	}
	if overdue || a.withheld {
		if !podsCurrent {
			if pods, err = c.readPods(ctx, service); err != nil {
				return controller.Result{}, c.report(service, &attempt{err: err}, err)
			}
		}
		if existing, err = c.readSlices(ctx, t, key, existing); err == nil {
			st.verified, st.uncertain, st.staleSince = true, false, time.Time{}
			a, err = reconcile(false)
		} else {
			a = &attempt{err: err}
		}
	}
	return controller.Result{}, c.report(service, a, err)
}

// observe records the slices of the cache, and whether the cache lacks known slices.
func (st *state) observe(stale bool, cached []*discoveryv1.EndpointSlice, now time.Time) {
	switch {
	case !stale:
		st.staleSince = time.Time{}
	case st.staleSince.IsZero():
		st.staleSince = now
	}
	if slices.ContainsFunc(cached, func(slice *discoveryv1.EndpointSlice) bool { return slice.Name == st.createName }) {
		st.createName = ""
	}
}

// forget drops what is known about a Service that is gone.
func (t *term) forget(key cache.ObjectName) {
	t.triggers.DeleteService(key.Namespace, key.Name)
	t.reconciler.DeleteService(key.Namespace, key.Name)
	t.tracker.DeleteService(key.Namespace, key.Name)
	t.states.Delete(key)
}

func (c *Controller) cachedSlices(service cache.ObjectName) (decoded []*discoveryv1.EndpointSlice, err error) {
	for _, cached := range c.slices.ByIndex(byService, service.String()) {
		slice, err := cached.decode()
		if err != nil {
			return nil, err
		}
		decoded = append(decoded, slice)
	}
	return decoded, nil
}

func (c *Controller) selectedPods(service *corev1.Service) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range c.pods.InNamespace(service.Namespace) {
		if matches(service.Spec.Selector, pod.Labels) {
			pods = append(pods, libraryPod(pod))
		}
	}
	return pods
}

func (c *Controller) readPods(ctx context.Context, service *corev1.Service) ([]*corev1.Pod, error) {
	live, _, err := c.pods.Read(ctx, c.client, service.Namespace, metav1.ListOptions{LabelSelector: labels.Set(service.Spec.Selector).String()})
	if err != nil {
		return nil, fmt.Errorf("read the pods live: %w", err)
	}
	pods := make([]*corev1.Pod, len(live))
	for i, pod := range live {
		pods[i] = libraryPod(pod)
	}
	return pods, nil
}

// readSlices returns the slices of a Service from the API server. From now on the tracker expects the cache to
// show them, so that no later sync is decided on older slices.
func (c *Controller) readSlices(ctx context.Context, t *term, service cache.ObjectName, cached []*discoveryv1.EndpointSlice) ([]*discoveryv1.EndpointSlice, error) {
	selector := labels.Set{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: managedBy}
	list, err := c.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("read the EndpointSlices live: %w", err)
	}
	t.tracker.DeleteService(service.Namespace, service.Name)
	for _, slice := range cached {
		t.tracker.ExpectDeletion(slice)
	}
	var live []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if slice := &list.Items[i]; slice.DeletionTimestamp == nil {
			live = append(live, slice)
			t.tracker.Update(slice)
			c.slices.Expect(slice.ResourceVersion)
		}
	}
	return live, nil
}

// report counts a sync, and returns its error. The end of the term is no failure.
func (c *Controller) report(service *corev1.Service, a *attempt, err error) error {
	if err == nil {
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues(syncSuccess).Inc()
		return nil
	}
	if a.err != nil {
		err = a.err // with its type
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	endpointslicemetrics.EndpointSliceSyncs.WithLabelValues(syncError).Inc()
	c.recorder.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
		"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, outcome.EventMessage(err))
	return a.err // nil if only nodes of pods are missing: the event of the node adds the Service
}

// reconcileNodes passes all nodes to the topology cache, and adds the Services with hints out of balance.
func (c *Controller) reconcileNodes(ctx context.Context, _ string) (controller.Result, error) {
	t := c.term.Load()
	t.topology.SetNodes(libraryLogger(ctx), c.nodes.List())
	for _, key := range t.topology.GetOverloadedServices() {
		if name, err := cache.ParseObjectName(key); err == nil {
			c.loop.Add(name)
		}
	}
	return controller.Result{}, nil
}
