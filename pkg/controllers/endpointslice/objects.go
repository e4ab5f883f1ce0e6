package endpointslice

import (
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// trimSlice keeps only the metadata of slices with another manager. Equal strings of slices are stored once.
func trimSlice(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	slice.ManagedFields = nil
	if !isManaged(slice) {
		slice.Annotations = nil
		return &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}, nil
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		for _, condition := range []**bool{&e.Conditions.Ready, &e.Conditions.Serving, &e.Conditions.Terminating} {
			if *condition != nil {
				*condition = sharedBool(**condition)
			}
		}
		for _, name := range []*string{e.NodeName, e.Zone} {
			if name != nil {
				*name = unique.Make(*name).Value()
			}
		}
		if pod := e.TargetRef; pod != nil {
			pod.Kind, pod.Namespace = unique.Make(pod.Kind).Value(), unique.Make(pod.Namespace).Value()
		}
	}
	return slice, nil
}

var yes, no = true, false

func sharedBool(value bool) *bool {
	if value {
		return &yes
	}
	return &no
}

func isManaged(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == managedBy
}

// serviceOf returns the Service of a slice. Without a Service the name is empty.
func serviceOf(slice *discoveryv1.EndpointSlice) cache.ObjectName {
	return cache.NewObjectName(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
}

// byService is an index of the managed slices that are not being deleted.
const byService = "service"

func indexByService(obj any) ([]string, error) {
	slice := obj.(*discoveryv1.EndpointSlice)
	if !isManaged(slice) || slice.DeletionTimestamp != nil {
		return nil, nil
	}
	return []string{serviceOf(slice).String()}, nil
}

// endpointChanged reports whether a pod changed in a field that slices show.
func endpointChanged(old, pod *caches.Pod) bool {
	return old.UID != pod.UID || old.NodeName != pod.NodeName || old.IsFinished() != pod.IsFinished() ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		(old.Ready.Status == corev1.ConditionTrue) != (pod.Ready.Status == corev1.ConditionTrue) ||
		old.Endpoint.Hostname != pod.Endpoint.Hostname || old.Endpoint.Subdomain != pod.Endpoint.Subdomain ||
		!slices.Equal(old.Endpoint.IPs, pod.Endpoint.IPs)
}

// libraryPod returns a pod with the fields that the library reads. Labels, addresses and ports are those of the
// cache.
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
