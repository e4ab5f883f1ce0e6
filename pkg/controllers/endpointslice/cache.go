package endpointslice

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

// trimService keeps the annotations that the library reads.
func trimService(service *corev1.Service) any {
	service.ManagedFields, service.Status = nil, corev1.ServiceStatus{}
	maps.DeleteFunc(service.Annotations, func(key, _ string) bool {
		return key != corev1.AnnotationTopologyMode && key != corev1.DeprecatedAnnotationTopologyAwareHints
	})
	return service
}

// EndpointSlice is a cached slice. The content is encoded, which takes a third of the memory, because only syncs of
// the Service read the content. Slices of other managers have no content. The name of the type is the kind that
// caches.Observer receives.
type EndpointSlice struct {
	metav1.ObjectMeta
	content []byte
}

// trimSlice converts slices to the cached type.
func trimSlice(slice *discoveryv1.EndpointSlice) any {
	trimmed := &EndpointSlice{ObjectMeta: slice.ObjectMeta}
	trimmed.ManagedFields = nil
	if serviceOf(trimmed).Name != "" {
		slice.ObjectMeta = metav1.ObjectMeta{}
		trimmed.content, _ = slice.Marshal() // cannot fail
	}
	return trimmed
}

// decode returns a managed slice as the library reads it.
func (s *EndpointSlice) decode() *discoveryv1.EndpointSlice {
	decoded := &discoveryv1.EndpointSlice{}
	utilruntime.Must(decoded.Unmarshal(s.content)) // encoded by trimSlice
	decoded.ObjectMeta = s.ObjectMeta
	return decoded
}

// libraryPods returns the selected pods with the fields that the library reads. Labels, addresses and ports are
// shared with the cache. A pod without the condition Ready gets an empty condition, which the library reads as none.
func libraryPods(service *corev1.Service, pods []*caches.Pod) (selected []*corev1.Pod) {
	for _, pod := range pods {
		if selects(service, pod.Labels) {
			e := pod.Endpoint
			ready := corev1.PodCondition{Type: corev1.PodReady, Status: pod.Ready.Status, LastTransitionTime: pod.Ready.Since}
			selected = append(selected, &corev1.Pod{
				ObjectMeta: pod.ObjectMeta,
				Spec:       corev1.PodSpec{NodeName: pod.NodeName, Hostname: e.Hostname, Subdomain: e.Subdomain, Containers: e.Containers},
				Status:     corev1.PodStatus{Phase: pod.Phase, PodIPs: e.IPs, Conditions: []corev1.PodCondition{ready}},
			})
		}
	}
	return selected
}

// endpointChanged reports whether a pod changed in a field that slices show.
func endpointChanged(old, pod *caches.Pod) bool {
	return old.UID != pod.UID || old.NodeName != pod.NodeName || old.IsFinished() != pod.IsFinished() ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		old.IsReady() != pod.IsReady() ||
		old.Endpoint.Hostname != pod.Endpoint.Hostname || old.Endpoint.Subdomain != pod.Endpoint.Subdomain ||
		!slices.Equal(old.Endpoint.IPs, pod.Endpoint.IPs)
}

// serviceOf returns the Service of a managed slice that is not being deleted. For other slices the name is empty.
func serviceOf(slice *EndpointSlice) (service cache.ObjectName) {
	if slice.Labels[discoveryv1.LabelManagedBy] == managedBy && slice.DeletionTimestamp == nil {
		service = cache.NewObjectName(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
	}
	return service
}

// byService is an index of slices, by serviceOf.
const byService = "service"

func indexByService(obj any) ([]string, error) {
	return []string{serviceOf(obj.(*EndpointSlice)).String()}, nil
}

// byLabel is an index of pods, by labelPair of each label. Finished pods are in no slice.
const byLabel = "label"

func indexByLabel(obj any) (pairs []string, _ error) {
	if pod := obj.(*caches.Pod); !pod.IsFinished() {
		for key, value := range pod.Labels {
			pairs = append(pairs, labelPair(pod.Namespace, key, value))
		}
	}
	return pairs, nil
}

// bySelector is an index of the Services that get slices from this controller, by rareLabel.
const bySelector = "selector"

func indexBySelector(obj any) (pairs []string, _ error) {
	if service := obj.(*corev1.Service); selectsPods(service) {
		pairs = append(pairs, rareLabel(service))
	}
	return pairs, nil
}

// rareLabel returns the labelPair of the selector with the longest value, which few Services and pods share.
func rareLabel(service *corev1.Service) string {
	selector := service.Spec.Selector
	key := slices.MaxFunc(slices.Sorted(maps.Keys(selector)), func(a, b string) int { return len(selector[a]) - len(selector[b]) })
	return labelPair(service.Namespace, key, selector[key])
}

func labelPair(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// selectsPods reports whether a Service gets slices from this controller.
func selectsPods(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && len(service.Spec.Selector) > 0
}

func selects(service *corev1.Service, podLabels map[string]string) bool {
	return labels.ValidatedSetSelector(service.Spec.Selector).Matches(labels.Set(podLabels))
}
