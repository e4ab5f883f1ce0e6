package endpointslice

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

// trimService keeps the annotations that the library reads.
func trimService(obj any) (any, error) {
	if service, ok := obj.(*corev1.Service); ok {
		service.ManagedFields, service.Status = nil, corev1.ServiceStatus{}
		maps.DeleteFunc(service.Annotations, func(key, _ string) bool {
			return key != corev1.AnnotationTopologyMode && key != corev1.DeprecatedAnnotationTopologyAwareHints
		})
	}
	return obj, nil
}

// EndpointSlice is a cached slice. The content is encoded, which takes a third of the memory, because only
// syncs of the Service read the content. Slices of other managers have no content.
type EndpointSlice struct {
	metav1.ObjectMeta
	content []byte
}

// trimSlice converts slices to the cached type.
func trimSlice(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	kept := &EndpointSlice{ObjectMeta: slice.ObjectMeta}
	kept.ManagedFields = nil
	if !isManaged(slice) {
		kept.Annotations = nil
		return kept, nil
	}
	content := discoveryv1.EndpointSlice{AddressType: slice.AddressType, Endpoints: slice.Endpoints, Ports: slice.Ports}
	var err error
	kept.content, err = content.Marshal()
	return kept, err
}

// decode returns the slice with its content.
func (s *EndpointSlice) decode() (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := slice.Unmarshal(s.content); err != nil {
		return nil, fmt.Errorf("decode cached EndpointSlice %s: %w", s.Name, err)
	}
	slice.ObjectMeta = s.ObjectMeta
	return slice, nil
}

// withoutContent returns the slice as the tracker of the library reads it.
func (s *EndpointSlice) withoutContent() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: s.ObjectMeta}
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

// selectsPods reports whether a Service gets slices from this controller.
func selectsPods(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && len(service.Spec.Selector) > 0
}

func matches(selector, podLabels map[string]string) bool {
	for key, value := range selector {
		if actual, ok := podLabels[key]; !ok || actual != value {
			return false
		}
	}
	return true
}

// endpointChanged reports whether a pod changed in a field that slices show.
func endpointChanged(old, pod *caches.Pod) bool {
	return old.UID != pod.UID || old.NodeName != pod.NodeName || old.IsFinished() != pod.IsFinished() ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		(old.Ready.Status == corev1.ConditionTrue) != (pod.Ready.Status == corev1.ConditionTrue) ||
		old.Endpoint.Hostname != pod.Endpoint.Hostname || old.Endpoint.Subdomain != pod.Endpoint.Subdomain ||
		!slices.Equal(old.Endpoint.IPs, pod.Endpoint.IPs)
}

// libraryPod returns a pod with the fields that the library reads. Labels, addresses and ports are shared with
// the cache.
func libraryPod(pod *caches.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: pod.ObjectMeta,
		Spec: corev1.PodSpec{
			NodeName: pod.NodeName, Hostname: pod.Endpoint.Hostname, Subdomain: pod.Endpoint.Subdomain, Containers: pod.Endpoint.Containers,
		},
		Status: corev1.PodStatus{Phase: pod.Phase, PodIPs: pod.Endpoint.IPs},
	}
	if pod.Ready.Status != "" {
		out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: pod.Ready.Status, LastTransitionTime: pod.Ready.Since}}
	}
	return out
}

// nodeLister is the part of a lister that the library calls.
type nodeLister struct {
	corelisters.NodeLister
	nodes *caches.Nodes
}

// Get implements corelisters.NodeLister.
func (l nodeLister) Get(name string) (*corev1.Node, error) {
	node, ok := l.nodes.Get(cache.NewObjectName("", name))
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return node, nil
}
