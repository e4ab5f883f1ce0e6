package endpointslice

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
)

// A pod of a Deployment and its endpoint in a slice take at most 400 bytes more than a pod without this controller.
func TestMemoryOfAnEndpoint(t *testing.T) {
	const pods, most = 20_000, 400
	fill := func(fields caches.Fields, indexers cache.Indexers) int {
		store, err := caches.New(fakeapi.NewClientset(t), caches.Config{Fields: fields}).Pods()
		fakeapi.NoError(t, err)
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
		return heapOf(pods, func(i int) any {
			fakeapi.NoError(t, indexer.Add(store.Trim(decoded[*corev1.Pod](t, memoryPod(i), &corev1.Pod{}))))
			return indexer
		})
	}
	pod := (fill(caches.PodEndpoint, cache.Indexers{byLabel: indexByLabel}) - fill(0, nil)) / pods
	endpoint := heapOf(pods/100, func(i int) any {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i)}}
		slice.Labels = map[string]string{discoveryv1.LabelManagedBy: managedBy, discoveryv1.LabelServiceName: "web"}
		for n := range 100 {
			pod := memoryPod(100*i + n)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{pod.Status.PodIPs[0].IP}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, NodeName: &pod.Spec.NodeName,
			})
		}
		return trimSlice(decoded[*discoveryv1.EndpointSlice](t, slice, &discoveryv1.EndpointSlice{}))
	}) / pods
	t.Logf("a pod takes %d bytes more, its endpoint %d", pod, endpoint)
	if pod+endpoint > most {
		t.Errorf("a pod and its endpoint take %d bytes more, want at most %d", pod+endpoint, most)
	}
}

func memoryPod(i int) *corev1.Pod {
	name := fmt.Sprintf("web-6d4cf56db6-%05d", i)
	return aPod("web", i, func(p *corev1.Pod) {
		p.Name, p.UID = name, types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		p.Spec.NodeName = fmt.Sprint("node-", i%100)
		p.Labels["pod-template-hash"], p.Labels["tier"] = "6d4cf56db6", "frontend"
	})
}

// decoded returns an object as a watch delivers it.
func decoded[T any](t *testing.T, in interface{ Marshal() ([]byte, error) }, out interface{ Unmarshal([]byte) error }) T {
	t.Helper()
	data, err := in.Marshal()
	if err == nil {
		err = out.Unmarshal(data)
	}
	fakeapi.NoError(t, err)
	return out.(T)
}

// heapOf returns the memory of n objects.
func heapOf(n int, build func(i int) any) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make([]any, n)
	for i := range kept {
		kept[i] = build(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int(after.HeapAlloc - before.HeapAlloc)
}
