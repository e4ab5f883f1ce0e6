package endpointslice

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/klog/v2"
)

// writeFunc creates, updates or deletes a slice, and returns the stored slice. A slice to delete has only a name.
type writeFunc func(verb string, slice *discoveryv1.EndpointSlice) (stored *discoveryv1.EndpointSlice, err error)

// computeSlices lets the library compute the writes that make the slices of a Service equal to its pods. The library
// passes each write to the function. The error also names pods that the slices leave out, because their nodes are
// missing.
func (t *term) computeSlices(ctx context.Context, service *corev1.Service, pods []*corev1.Pod, existing []*discoveryv1.EndpointSlice, trigger time.Time, write writeFunc) error {
	t.client.lock.Lock()
	defer t.client.lock.Unlock()
	t.client.write = write
	defer t.libraryTracker.DeleteService(service.Namespace, service.Name)
	return t.reconciler.Reconcile(libraryLogger(ctx), service, pods, existing, trigger)
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
	write writeFunc // of the sync that holds the lock
}

// writeUnlocked lets other syncs compute while the request is in flight.
func (l *libraryClient) writeUnlocked(verb string, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
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

func (l *libraryClient) Create(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	return l.writeUnlocked("create", slice)
}

func (l *libraryClient) Update(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	return l.writeUnlocked("update", slice)
}

func (l *libraryClient) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	_, err := l.writeUnlocked("delete", &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return err
}
