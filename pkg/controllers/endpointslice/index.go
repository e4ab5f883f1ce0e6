package endpointslice

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// selectorIndex finds the Services that select a pod. Each Service is kept under one label pair of its
// selector, so a lookup visits only Services that share a label with the pod.
type selectorIndex struct {
	lock   sync.RWMutex
	byPair map[labelPair]map[cache.ObjectName]map[string]string // selectors
	pairs  map[cache.ObjectName]labelPair
}

type labelPair struct{ namespace, key, value string }

func newSelectorIndex() *selectorIndex {
	return &selectorIndex{byPair: map[labelPair]map[cache.ObjectName]map[string]string{}, pairs: map[cache.ObjectName]labelPair{}}
}

// set adds a Service, or changes its selector. The Service is kept under the pair with the fewest
// Services.
func (x *selectorIndex) set(service *corev1.Service) {
	x.remove(service)
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
	if x.byPair[rarest] == nil {
		x.byPair[rarest] = map[cache.ObjectName]map[string]string{}
	}
	name := cache.MetaObjectToName(service)
	x.byPair[rarest][name], x.pairs[name] = service.Spec.Selector, rarest
}

func (x *selectorIndex) remove(service *corev1.Service) {
	x.lock.Lock()
	defer x.lock.Unlock()
	name := cache.MetaObjectToName(service)
	pair := x.pairs[name]
	delete(x.pairs, name)
	if delete(x.byPair[pair], name); len(x.byPair[pair]) == 0 {
		delete(x.byPair, pair)
	}
}

// servicesFor returns the Services of a namespace that select pods with these labels.
func (x *selectorIndex) servicesFor(namespace string, podLabels map[string]string) map[cache.ObjectName]bool {
	x.lock.RLock()
	defer x.lock.RUnlock()
	found := map[cache.ObjectName]bool{}
	for key, value := range podLabels {
		for name, selector := range x.byPair[labelPair{namespace, key, value}] {
			if matches(selector, podLabels) {
				found[name] = true
			}
		}
	}
	return found
}
