package endpointslice

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
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

// EndpointSlice is a cached slice. The content is encoded, which takes a third of the memory, because only syncs of
// the Service read the content. Slices of other managers have no content.
type EndpointSlice struct {
	metav1.ObjectMeta
	content []byte
}

// trimSlice converts slices to the cached type. client-go passes the objects of a streaming list twice.
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
