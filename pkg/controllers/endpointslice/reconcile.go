package endpointslice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	endpointslicemetrics "k8s.io/endpointslice/metrics"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// state is the state of one Service during a term.
type state struct {
	staleSince time.Time // since when the cache lacks known slices; zero if none is missing
	uncertain  bool      // slices may differ from the cache after a failed write
	createName string    // of a create that is not confirmed; the next create has the same name
}

// reconcile brings the slices of one Service in line with its pods.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	t, now := c.term.Load(), c.Clock.Now()

	// 1. Read the versions before the objects: a later read could return a version newer than the objects.
	current := t.baseline.ReachedBy(controller.VersionsOf(c.slices, c.pods))

	// 2. Read the Service. The garbage collector deletes the slices of a Service that is gone.
	service, ok := c.services.Get(key)
	if !ok {
		t.forget(key)
		return controller.Result{}, nil
	}
	if !selectsPods(service) { // its slices are left to the user
		return controller.Result{}, nil
	}
	st := t.states.For(key, service.UID)

	// 3. Wait until the cache shows the known slices, but not for ever: the cache never shows a slice that is
	// created and deleted between two lists.
	existing, err := c.cachedSlices(key)
	if err != nil {
		return controller.Result{}, err
	}
	stale := t.tracker.StaleSlices(service, existing)
	if !stale {
		st.staleSince = time.Time{}
	} else if st.staleSince.IsZero() {
		st.staleSince = now
	}
	overdue := stale && now.Sub(st.staleSince) >= controller.ConsistencyTimeout
	if stale && !overdue {
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("stale").Inc()
		return controller.Result{RequeueAfter: controller.ConsistencyRecheck}, nil
	}

	// 4. Plan the writes.
	pods := libraryPods(service, c.pods.InNamespace(key.Namespace))
	trigger := t.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	writes, missingNodes := t.plan(ctx, service, pods, existing, trigger)

	// 5. Plan again on a live read if the caches may be older than the term or than a write. A Service that needs
	// no write needs no live read.
	if overdue || len(writes) > 0 && (!current || st.uncertain) {
		if pods, existing, err = c.readLive(ctx, t, service, existing); err == nil {
			st.staleSince, st.uncertain = time.Time{}, false
			if slices.ContainsFunc(existing, func(slice *discoveryv1.EndpointSlice) bool { return slice.Name == st.createName }) {
				st.createName = ""
			}
			writes, missingNodes = t.plan(ctx, service, pods, existing, trigger)
		}
	}

	// 6. Send the writes. A failed write ends the writes of its address type, as in kube-controller-manager.
	failures := map[discoveryv1.AddressType]error{}
	for _, w := range writes {
		if of := w.slice.AddressType; err == nil && failures[of] == nil {
			failures[of] = c.send(ctx, t, st, w)
		}
	}
	err = errors.Join(append(slices.Collect(maps.Values(failures)), err)...)
	return controller.Result{}, c.report(service, missingNodes, err)
}

func (c *Controller) cachedSlices(service cache.ObjectName) ([]*discoveryv1.EndpointSlice, error) {
	var decoded []*discoveryv1.EndpointSlice
	for _, cached := range c.slices.ByIndex(byService, service.String()) {
		slice := &discoveryv1.EndpointSlice{}
		if err := slice.Unmarshal(cached.content); err != nil {
			return nil, fmt.Errorf("decode cached EndpointSlice %s: %w", cached.Name, err)
		}
		slice.ObjectMeta = cached.ObjectMeta
		decoded = append(decoded, slice)
	}
	return decoded, nil
}

// readLive returns the pods and slices of a Service from the API server. From now on the tracker expects the cache to
// show these slices, so that no later sync is decided on older slices.
func (c *Controller) readLive(ctx context.Context, t *term, service *corev1.Service, cached []*discoveryv1.EndpointSlice) ([]*corev1.Pod, []*discoveryv1.EndpointSlice, error) {
	pods, _, err := c.pods.Read(ctx, c.Client, service.Namespace, metav1.ListOptions{LabelSelector: labels.Set(service.Spec.Selector).String()})
	if err != nil {
		return nil, nil, fmt.Errorf("read the pods live: %w", err)
	}
	selector := labels.Set{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: managedBy}
	list, err := c.Client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, nil, fmt.Errorf("read the EndpointSlices live: %w", err)
	}
	t.tracker.DeleteService(service.Namespace, service.Name)
	for _, slice := range cached { // all count as deleted until the live list below
		t.tracker.ExpectDeletion(slice)
	}
	var existing []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if slice := &list.Items[i]; slice.DeletionTimestamp == nil {
			existing = append(existing, slice)
			c.expect(t, slice)
		}
	}
	return libraryPods(service, pods), existing, nil
}

// expect makes later syncs wait until the cache shows the slice.
func (c *Controller) expect(t *term, slice *discoveryv1.EndpointSlice) {
	t.tracker.Update(slice)
	c.slices.Expect(slice.ResourceVersion)
}

// send sends one write and records the outcome.
func (c *Controller) send(ctx context.Context, t *term, st *state, w write) error {
	if controller.Draining(ctx) {
		return controller.ErrDraining
	}
	if w.verb == "create" {
		st.createName = cmp.Or(st.createName, names.SimpleNameGenerator.GenerateName(w.slice.GenerateName))
		w.slice.Name = st.createName
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // client-go may repeat a write for minutes
	defer cancel()
	client := c.Client.DiscoveryV1().EndpointSlices(w.slice.Namespace)
	var stored *discoveryv1.EndpointSlice
	result, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		switch w.verb {
		case "create":
			stored, err = client.Create(ctx, w.slice, metav1.CreateOptions{})
		case "update":
			stored, err = client.Update(ctx, w.slice, metav1.UpdateOptions{})
		case "delete":
			err = client.Delete(ctx, w.slice.Name, metav1.DeleteOptions{})
		}
		return err
	})
	if w.verb == "create" && (result == outcome.Done || result == outcome.Exists) { // the name is not created later
		st.createName = ""
	}
	switch {
	case result == outcome.Done && stored == nil:
		t.tracker.ExpectDeletion(w.slice)
	case result == outcome.Done:
		c.expect(t, stored)
	case result != outcome.Terminating: // the namespace needs no slices
		st.uncertain = st.uncertain || result != outcome.Rejected && result != outcome.NotSent
		return fmt.Errorf("%s EndpointSlice %s: %w", w.verb, w.slice.Name, err)
	}
	return nil
}

// report counts a sync and returns err without missingNodes: the event of a missing node adds the Service. The end of
// the term is no failure.
func (c *Controller) report(service *corev1.Service, missingNodes, err error) error {
	failure := errors.Join(missingNodes, err)
	switch {
	case errors.Is(err, context.Canceled):
	case failure == nil:
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("success").Inc()
	default:
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("error").Inc()
		c.recorder.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, outcome.EventMessage(failure))
	}
	return err
}
