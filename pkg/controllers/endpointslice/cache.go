package endpointslice

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

// serviceStore is the cache of Services.
type serviceStore struct{ caches.Store[*corev1.Service] }

// Latest implements controller.LatestCache.
func (serviceStore) Latest(ctx context.Context, client kubernetes.Interface) (string, error) {
	return caches.LatestVersion(ctx, "Services", client.CoreV1().Services(metav1.NamespaceAll).List)
}

// sliceStore is the cache of EndpointSlices.
type sliceStore struct{ caches.Store[*EndpointSlice] }

// Latest implements controller.LatestCache.
func (sliceStore) Latest(ctx context.Context, client kubernetes.Interface) (string, error) {
	return caches.LatestVersion(ctx, "EndpointSlices", client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List)
}

// trimService keeps the annotations that the library reads.
func trimService(obj any) (any, error) {
	service := obj.(*corev1.Service)
	service.ManagedFields, service.Status = nil, corev1.ServiceStatus{}
	maps.DeleteFunc(service.Annotations, func(key, _ string) bool {
		return key != corev1.AnnotationTopologyMode && key != corev1.DeprecatedAnnotationTopologyAwareHints
	})
	return service, nil
}

// EndpointSlice is a cached slice. The content is encoded, which takes a third of the memory, because only syncs of
// the Service read the content. Slices of other managers have no content. Observers of the caches receive the type name
// as the kind.
type EndpointSlice struct {
	metav1.ObjectMeta
	content []byte
}

// trimSlice converts slices to the cached type. client-go passes the objects of a streaming list twice, the second
// time in the cached type.
func trimSlice(obj any) (_ any, err error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	kept := &EndpointSlice{ObjectMeta: slice.ObjectMeta}
	kept.ManagedFields = nil
	if isManaged(slice) {
		slice.ObjectMeta = metav1.ObjectMeta{}
		kept.content, err = slice.Marshal()
	}
	return kept, err
}

// decode returns a managed slice as the library reads it.
func (s *EndpointSlice) decode() *discoveryv1.EndpointSlice {
	decoded := &discoveryv1.EndpointSlice{}
	utilruntime.Must(decoded.Unmarshal(s.content)) // encoded by trimSlice
	decoded.ObjectMeta = s.ObjectMeta
	return decoded
}

func isManaged(slice metav1.Object) bool {
	return slice.GetLabels()[discoveryv1.LabelManagedBy] == managedBy
}

// serviceOf returns the Service of a slice. Without a Service the name is empty.
func serviceOf(slice metav1.Object) cache.ObjectName {
	return cache.NewObjectName(slice.GetNamespace(), slice.GetLabels()[discoveryv1.LabelServiceName])
}

// byService is an index of the managed slices that are not being deleted.
const byService = "service"

func indexByService(obj any) ([]string, error) {
	slice := obj.(*EndpointSlice)
	if !isManaged(slice) || slice.DeletionTimestamp != nil {
		return nil, nil
	}
	return []string{serviceOf(slice).String()}, nil
}

// selectorIndex finds the Services that select a pod. Each Service is kept under one label pair of its selector, so a
// lookup visits only Services that share a label with the pod.
type selectorIndex struct {
	lock   sync.RWMutex
	byPair map[labelPair][]*corev1.Service
}

type labelPair struct{ namespace, key, value string }

// replace removes the old Service and adds the new one, under the pair with the fewest Services. Either may be nil.
func (x *selectorIndex) replace(old, service *corev1.Service) {
	x.lock.Lock()
	defer x.lock.Unlock()
	for _, pair := range labelPairs(old) {
		x.byPair[pair] = slices.DeleteFunc(x.byPair[pair], func(known *corev1.Service) bool { return known.Name == old.Name })
		if len(x.byPair[pair]) == 0 {
			delete(x.byPair, pair)
		}
	}
	if pairs := labelPairs(service); len(pairs) > 0 {
		rarest := slices.MinFunc(pairs, func(a, b labelPair) int { return len(x.byPair[a]) - len(x.byPair[b]) })
		x.byPair[rarest] = append(x.byPair[rarest], service)
	}
}

// labelPairs returns the selector of a Service that gets slices from this controller.
func labelPairs(service *corev1.Service) (pairs []labelPair) {
	if service != nil && selectsPods(service) {
		for key, value := range service.Spec.Selector {
			pairs = append(pairs, labelPair{service.Namespace, key, value})
		}
	}
	return pairs
}

// servicesFor returns the Services of a namespace that select pods with these labels.
func (x *selectorIndex) servicesFor(namespace string, podLabels map[string]string) map[cache.ObjectName]bool {
	x.lock.RLock()
	defer x.lock.RUnlock()
	found := map[cache.ObjectName]bool{}
	for key, value := range podLabels {
		for _, service := range x.byPair[labelPair{namespace, key, value}] {
			if labels.ValidatedSetSelector(service.Spec.Selector).Matches(labels.Set(podLabels)) {
				found[cache.MetaObjectToName(service)] = true
			}
		}
	}
	return found
}

// selectsPods reports whether a Service gets slices from this controller.
func selectsPods(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && len(service.Spec.Selector) > 0
}
