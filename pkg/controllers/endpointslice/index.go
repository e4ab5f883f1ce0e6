package endpointslice

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// selectorIndex finds the Services that select a pod. Each Service is kept under one label pair of its selector, so a
// lookup visits only Services that share a label with the pod.
type selectorIndex struct {
	lock   sync.RWMutex
	byPair map[labelPair][]*corev1.Service
}

type labelPair struct{ namespace, key, value string }

// add keeps a Service under the pair with the fewest Services.
func (x *selectorIndex) add(service *corev1.Service) {
	if !selectsPods(service) {
		return
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	var rarest labelPair
	for key, value := range service.Spec.Selector {
		pair := labelPair{service.Namespace, key, value}
		if rarest.key == "" || len(x.byPair[pair]) < len(x.byPair[rarest]) {
			rarest = pair
		}
	}
	x.byPair[rarest] = append(x.byPair[rarest], service)
}

// remove removes a Service with the selector that add was called with.
func (x *selectorIndex) remove(service *corev1.Service) {
	x.lock.Lock()
	defer x.lock.Unlock()
	for key, value := range service.Spec.Selector {
		pair := labelPair{service.Namespace, key, value}
		x.byPair[pair] = slices.DeleteFunc(x.byPair[pair], func(known *corev1.Service) bool { return known.Name == service.Name })
		if len(x.byPair[pair]) == 0 {
			delete(x.byPair, pair)
		}
	}
}

// servicesFor returns the Services of a namespace that select pods with these labels.
func (x *selectorIndex) servicesFor(namespace string, podLabels map[string]string) map[cache.ObjectName]bool {
	x.lock.RLock()
	defer x.lock.RUnlock()
	found := map[cache.ObjectName]bool{}
	for key, value := range podLabels {
		for _, service := range x.byPair[labelPair{namespace, key, value}] {
			if matches(service.Spec.Selector, podLabels) {
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

func matches(selector, podLabels map[string]string) bool {
	for key, value := range selector {
		if actual, ok := podLabels[key]; !ok || actual != value {
			return false
		}
	}
	return true
}
