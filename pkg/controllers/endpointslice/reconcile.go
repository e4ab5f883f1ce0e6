package endpointslice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	endpointslicemetrics "k8s.io/endpointslice/metrics"

	"minikcm/internal/rv"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/outcome"
)

// state is the state of one Service during a term.
type state struct {
	notBefore   time.Time // of the next sync
	liveVersion string    // resourceVersion of the Service at the last live read
	readLiveAt  time.Time // when the slices are read live; zero while the cache shows the known slices
	createName  string    // of a create that is not confirmed; the next create has the same name
}

var errHeldBack = errors.New("write needs a live read first")

// reconcile brings the slices of one Service in line with its pods.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	t, now := c.term.Load(), c.Clock.Now()

	// 1. Read the versions before the objects: a later read could return a version newer than the objects.
	current := t.baseline.ReachedBy(controller.VersionsOf(c.slices, c.pods))
	servicesCurrent := t.serviceBaseline.ReachedBy(controller.VersionsOf(c.services))

	// 2. Read the Service. The garbage collector deletes the slices of a Service that is gone.
	service, ok := c.services.Get(key)
	if !ok {
		t.triggers.DeleteService(key.Namespace, key.Name)
		t.reconciler.DeleteService(key.Namespace, key.Name)
		t.tracker.DeleteService(key.Namespace, key.Name)
		t.states.Delete(key)
	}
	if !ok || !selectsPods(service) { // without a selector, the slices are left to the user
		return controller.Result{}, nil
	}
	st := t.states.For(key, service.UID)
	if wait := st.notBefore.Sub(now); wait > 0 {
		return controller.Result{RequeueAfter: wait}, nil
	}
	if st.liveVersion != "" {
		servicesCurrent = rv.AtLeast(service.ResourceVersion, st.liveVersion)
	}

	// 3. Wait until the cache shows the known slices. It never shows a slice that existed only between two lists.
	var existing []*discoveryv1.EndpointSlice
	for _, slice := range c.slices.ByIndex(byService, key.String()) {
		existing = append(existing, slice.decode())
	}
	stale := t.tracker.StaleSlices(service, existing)
	if stale {
		st.readLiveAt = cmp.Or(st.readLiveAt, now.Add(controller.ConsistencyTimeout))
	} else if st.readLiveAt.After(now) {
		st.readLiveAt = time.Time{}
	}
	if left := st.readLiveAt.Sub(now); left > 0 {
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("stale").Inc()
		return controller.Result{RequeueAfter: min(max(controller.ConsistencyTimeout-left, minStaleDelay), controller.ConsistencyRecheck)}, nil
	}
	overdue := !st.readLiveAt.IsZero() // before the writes of this sync

	// 4. Let the library compute and send the writes, unless the caches may be older than the term or than a write.
	// A held pass only shows whether a write is needed; step 5 computes again.
	readAll := overdue || !current
	holdBack, held := readAll || !servicesCurrent, false
	var failures []error
	write := func(verb string, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
		if holdBack {
			held = true
			return nil, errHeldBack
		}
		if verb == "delete" { // the library passes only the name
			slice = existing[slices.IndexFunc(existing, func(known *discoveryv1.EndpointSlice) bool { return known.Name == slice.Name })]
		}
		stored, err := c.writeSlice(ctx, t, st, verb, slice)
		if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return stored, err // a terminating namespace needs no slices
		}
		failures = append(failures, fmt.Errorf("%s EndpointSlice %s: %w", verb, slice.Name, err))
		return nil, errors.New(outcome.EventMessage(err))
	}
	pods := libraryPods(service, c.pods.ByIndex(byLabel, rareLabel(service)))
	trigger := t.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	problem := t.computeSlices(ctx, service, pods, existing, trigger, write)

	// 5. Compute again on live reads and send, if a write is needed, or a live read is overdue.
	if held || overdue {
		latest, err := live.GetSame(ctx, service, c.Client.CoreV1().Services(service.Namespace).Get)
		if err == nil { // no later sync may use an older Service, also if this one writes nothing
			c.services.Expect(latest.ResourceVersion)
			st.liveVersion = latest.ResourceVersion
		}
		if errors.Is(err, live.ErrReplaced) || err == nil && !selectsPods(latest) {
			return controller.Result{}, nil // the event of the Service follows
		}
		if err == nil && (readAll || latest.ResourceVersion != service.ResourceVersion) {
			pods, existing, err = c.readLive(ctx, t, latest, existing)
		}
		if err != nil {
			return controller.Result{}, c.report(service, err, err)
		}
		service, holdBack, st.readLiveAt = latest, false, time.Time{}
		if slices.ContainsFunc(existing, func(slice *discoveryv1.EndpointSlice) bool { return slice.Name == st.createName }) {
			st.createName = ""
		}
		problem = t.computeSlices(ctx, service, pods, existing, trigger, write)
	}
	if len(failures) == 0 { // a sync that only waits ends the back-off of its Service
		st.notBefore = now.Add(syncDelay(len(pods)))
	}
	return controller.Result{}, c.report(service, problem, errors.Join(failures...))
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
	for _, slice := range cached { // later syncs wait until the cache lacks the slices that the live list lacks
		t.tracker.ExpectDeletion(slice)
	}
	var existing []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if slice := &list.Items[i]; slice.DeletionTimestamp == nil {
			existing = append(existing, slice)
			t.tracker.Update(slice)
		}
	}
	return libraryPods(service, pods), existing, nil
}

// writeSlice sends one write, and tracks the slice at once, without the lock of the library. The event of a tracked
// write causes no sync.
func (c *Controller) writeSlice(ctx context.Context, t *term, st *state, verb string, slice *discoveryv1.EndpointSlice) (stored *discoveryv1.EndpointSlice, err error) {
	if controller.Draining(ctx) {
		return nil, controller.ErrDraining
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // client-go may repeat a write for minutes
	defer cancel()
	client := c.Client.DiscoveryV1().EndpointSlices(slice.Namespace)
	switch verb {
	case "create":
		st.createName = cmp.Or(st.createName, names.SimpleNameGenerator.GenerateName(slice.GenerateName))
		slice.Name = st.createName
		stored, err = client.Create(ctx, slice, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) { // an earlier create cannot succeed any more
			st.createName = ""
		}
	case "update":
		stored, err = client.Update(ctx, slice, metav1.UpdateOptions{})
	case "delete":
		err = client.Delete(ctx, slice.Name, metav1.DeleteOptions{})
	}
	switch {
	case err != nil:
		if result := outcome.FromError(err); result != outcome.Rejected && result != outcome.Terminating {
			st.readLiveAt = c.Clock.Now() // the response was lost or contradicts the cache, as a conflict does
		}
	case stored != nil:
		t.tracker.Update(stored)
		c.slices.Expect(stored.ResourceVersion)
	default:
		t.tracker.ExpectDeletion(slice)
	}
	return stored, err
}

// report counts a sync and returns the failures of requests. The problem of a missing node is no failure: the event of
// the node adds the Service. The end of the term is no failure either.
func (c *Controller) report(service *corev1.Service, problem, failures error) error {
	switch {
	case errors.Is(failures, context.Canceled):
	case problem == nil:
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("success").Inc()
	default:
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("error").Inc()
		c.recorder.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, outcome.EventMessage(problem))
	}
	return failures
}
