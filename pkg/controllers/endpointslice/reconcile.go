package endpointslice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"
	endpointslicemetrics "k8s.io/endpointslice/metrics"
	"k8s.io/klog/v2"

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

// serviceSync is one sync of a Service: its objects, and whether they are recent enough for writes.
type serviceSync struct {
	term             *term
	state            *state
	service          *corev1.Service
	pods             []*corev1.Pod
	existing         []*discoveryv1.EndpointSlice
	needsLiveSlices  bool  // writes need live pods and slices, and the live Service
	needsLiveService bool  // writes need a live read, at least of the Service
	heldBack         bool  // no write is sent before a live read
	requestErr       error // of failed requests
}

// reconcile brings the slices of one Service in line with its pods.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	t, now := c.term.Load(), c.Clock.Now()

	// 1. Read the versions before the objects: a later read could return a version newer than the objects.
	versions := controller.VersionsOf(c.services, c.pods, c.slices)

	// 2. Read the Service. The garbage collector deletes the slices of a Service that is gone.
	service, ok := c.services.Get(key)
	if !ok {
		t.states.Delete(key)
		t.tracker.DeleteService(key.Namespace, key.Name)
		t.triggers.DeleteService(key.Namespace, key.Name)
		t.reconciler.DeleteService(key.Namespace, key.Name)
		t.topology.RemoveHints(key.String(), discoveryv1.AddressTypeIPv4)
		t.topology.RemoveHints(key.String(), discoveryv1.AddressTypeIPv6)
	}
	if !ok || !selectsPods(service) { // without a selector, the slices are left to the user
		return controller.Result{}, nil
	}
	s := &serviceSync{term: t, state: t.states.For(key, service.UID), service: service}
	if wait := s.state.notBefore.Sub(now); wait > 0 {
		return controller.Result{RequeueAfter: wait}, nil
	}

	// 3. Wait until the cache shows the known slices, but not for ever: a slice that existed only between two lists is
	//    never shown. A live read that is due stays due.
	for _, slice := range c.slices.ByIndex(byService, key.String()) {
		s.existing = append(s.existing, slice.decode())
	}
	if t.tracker.StaleSlices(service, s.existing) {
		s.state.readLiveAt = cmp.Or(s.state.readLiveAt, now.Add(controller.ConsistencyTimeout))
	} else if s.state.readLiveAt.After(now) {
		s.state.readLiveAt = time.Time{}
	}
	if left := s.state.readLiveAt.Sub(now); left > 0 {
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("stale").Inc()
		return controller.Result{RequeueAfter: min(max(controller.ConsistencyTimeout-left, minStaleDelay), controller.ConsistencyRecheck)}, nil
	}

	// 4. Compute and send the writes, unless the caches may be older than the term or than a write.
	serviceCurrent := rv.AtLeast(service.ResourceVersion, s.state.liveVersion) ||
		s.state.liveVersion == "" && t.serviceBaseline.ReachedBy(versions)
	s.needsLiveSlices = !s.state.readLiveAt.IsZero() || !t.baseline.ReachedBy(versions)
	s.needsLiveService = s.needsLiveSlices || !serviceCurrent
	s.pods = libraryPods(service, c.pods.ByIndex(byLabel, rareLabel(service)))
	err := c.updateSlices(ctx, s)
	if err == nil { // after an error, a sync that only waits would end the back-off
		// With many pods, a sync is expensive, and a late endpoint costs little traffic.
		s.state.notBefore = now.Add(time.Millisecond * time.Duration(min(len(s.pods), 100)))
	}
	return controller.Result{}, err
}

// updateSlices lets the library compute and send the writes, again on live reads if a write was held back or a live
// read is overdue. It returns the failures of requests.
func (c *Controller) updateSlices(ctx context.Context, s *serviceSync) error {
	trigger := s.term.triggers.ComputeEndpointLastChangeTriggerTime(s.service.Namespace, s.service, s.pods)
	var err error
	if s.heldBack = !s.state.readLiveAt.IsZero(); !s.heldBack {
		err = c.computeSlices(ctx, s, trigger)
	}
	if s.heldBack {
		if err = c.readLive(ctx, s); errors.Is(err, controller.ErrOutdated) {
			return nil // the event of the Service follows
		}
		if s.requestErr = err; err == nil {
			err = c.computeSlices(ctx, s, trigger)
		}
	}
	switch {
	case errors.Is(s.requestErr, context.Canceled):
	case err == nil:
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("success").Inc()
	default:
		endpointslicemetrics.EndpointSliceSyncs.WithLabelValues("error").Inc()
		c.recorder.Eventf(s.service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", s.service.Namespace, s.service.Name, outcome.EventMessage(err))
	}
	return s.requestErr
}

// readLive reads the Service from the API server, and unless the caches are sufficient its pods and slices. From now on
// the tracker expects the cache to show these slices, so that no later sync is decided on older slices.
func (c *Controller) readLive(ctx context.Context, s *serviceSync) error {
	known := s.service
	service, err := live.GetSame(ctx, known, c.Client.CoreV1().Services(known.Namespace).Get)
	if err != nil {
		return err
	}
	c.services.Expect(service.ResourceVersion)
	s.state.liveVersion = service.ResourceVersion // for later syncs, even if this one writes nothing
	if !selectsPods(service) {
		return controller.ErrOutdated
	}
	s.service, s.needsLiveService = service, false
	if !s.needsLiveSlices && service.ResourceVersion == known.ResourceVersion {
		return nil
	}
	pods, _, err := c.pods.Read(ctx, c.Client, service.Namespace, metav1.ListOptions{LabelSelector: labels.Set(service.Spec.Selector).String()})
	if err != nil {
		return fmt.Errorf("read the pods live: %w", err)
	}
	selector := labels.Set{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: managedBy}
	list, err := c.Client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return fmt.Errorf("read the EndpointSlices live: %w", err)
	}
	s.term.tracker.DeleteService(service.Namespace, service.Name)
	for _, slice := range s.existing { // later syncs wait until the cache lacks the slices that the live list lacks
		s.term.tracker.ExpectDeletion(slice)
	}
	s.pods, s.existing, s.state.readLiveAt = libraryPods(service, pods), nil, time.Time{}
	for _, slice := range list.Items {
		if slice.Name == s.state.createName {
			s.state.createName = ""
		}
		if slice.DeletionTimestamp == nil {
			s.existing = append(s.existing, &slice)
			s.term.tracker.Update(&slice)
		}
	}
	return nil
}

// computeSlices lets the library compute the writes that make the slices of a Service equal to its pods, and send each
// write. The error also names pods that the slices leave out, because their nodes are missing.
func (c *Controller) computeSlices(ctx context.Context, s *serviceSync, trigger time.Time) error {
	s.term.library.lock.Lock()
	defer s.term.library.lock.Unlock()
	if c.topologyOutdated.Swap(false) { // otherwise a sync could remove hints that no later event would restore
		s.term.topology.SetNodes(libraryLogger(ctx), c.nodes.List())
	}
	s.term.library.write = func(verb string, slice *discoveryv1.EndpointSlice) error { return c.write(ctx, s, verb, slice) }
	return s.term.reconciler.Reconcile(libraryLogger(ctx), s.service, s.pods, s.existing, trigger)
}

// libraryLogger returns a logger for the library, which logs details at the level of events.
func libraryLogger(ctx context.Context) klog.Logger { return klog.FromContext(ctx).V(2) }

// libraryClient is the client of the library. Its requests name neither the sync nor the context of the sync, so only
// the sync that holds the lock may compute. Methods that the library does not call panic.
type libraryClient struct {
	kubernetes.Interface
	discoveryclient.DiscoveryV1Interface
	discoveryclient.EndpointSliceInterface

	lock  sync.Mutex
	write func(verb string, slice *discoveryv1.EndpointSlice) error // of the sync that holds the lock
}

// writeUnlocked lets other syncs compute while the request is in flight.
func (l *libraryClient) writeUnlocked(verb string, slice *discoveryv1.EndpointSlice) error {
	write := l.write
	l.lock.Unlock()
	defer func() {
		l.lock.Lock()
		l.write = write
	}()
	return write(verb, slice)
}

func (l *libraryClient) DiscoveryV1() discoveryclient.DiscoveryV1Interface { return l }

func (l *libraryClient) EndpointSlices(string) discoveryclient.EndpointSliceInterface { return l }

// The library tracks the slice that Create or Update returns. The slice is empty, because write tracks the stored slice
// earlier, without the lock: a late change of the tracker could follow the event of a later change.

func (l *libraryClient) Create(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	return &discoveryv1.EndpointSlice{}, l.writeUnlocked("create", slice)
}

func (l *libraryClient) Update(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	return &discoveryv1.EndpointSlice{}, l.writeUnlocked("update", slice)
}

func (l *libraryClient) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	return l.writeUnlocked("delete", &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// write sends one write. The event of a tracked write causes no sync. The library tracks deletes.
func (c *Controller) write(ctx context.Context, s *serviceSync, verb string, slice *discoveryv1.EndpointSlice) (err error) {
	if s.heldBack = s.needsLiveService; s.heldBack {
		return errors.New("write needs a live read first")
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // client-go may repeat a write for minutes
	defer cancel()
	client := c.Client.DiscoveryV1().EndpointSlices(s.service.Namespace)
	var stored *discoveryv1.EndpointSlice
	switch {
	case controller.Draining(ctx):
		err = controller.ErrDraining
	case verb == "create":
		s.state.createName = cmp.Or(s.state.createName, names.SimpleNameGenerator.GenerateName(slice.GenerateName))
		slice.Name = s.state.createName
		stored, err = client.Create(ctx, slice, metav1.CreateOptions{})
		if err == nil || outcome.FromError(err) == outcome.Exists { // an earlier create cannot succeed any more
			s.state.createName = ""
		}
	case verb == "update":
		stored, err = client.Update(ctx, slice, metav1.UpdateOptions{})
	case verb == "delete":
		err = client.Delete(ctx, slice.Name, metav1.DeleteOptions{})
	}
	switch outcome.FromError(err) {
	case outcome.Done:
		if stored != nil {
			s.term.tracker.Update(stored)
			c.slices.Expect(stored.ResourceVersion)
		}
		return nil
	case outcome.Terminating: // a terminating namespace needs no slices
		return err
	case outcome.Exists, outcome.NotFound, outcome.Conflict, outcome.Unknown: // old cache, or lost response
		s.state.readLiveAt = c.Clock.Now()
	}
	s.requestErr = errors.Join(s.requestErr, fmt.Errorf("%s EndpointSlice %s: %w", verb, slice.Name, err))
	return errors.New(outcome.EventMessage(err))
}
