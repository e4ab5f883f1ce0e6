package caches

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/fakeapi"
)

// The fake clientset covers wiring: informers and handlers.
// Behaviour on a real API server is in test/integration.

func TestOnlyRequestedTypesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(fake.NewClientset(), Config{Name: t.Name()})
		first := fakeapi.Must(c.Pods())
		if second := fakeapi.Must(c.Pods()); first != second {
			t.Error("two requests for pods made two caches")
		}
		fakeapi.Must(c.Nodes())
		var got []string
		for _, typ := range c.Types() {
			got = append(got, typ.Resource.Resource)
		}
		want := []string{"pods", "nodes"}
		fakeapi.WantEqual(t, "watched types", got, want)
		fakeapi.WantEqual(t, "unsynced before the start", c.Unsynced(), want)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fakeapi.Want(t, "WaitForSync", fmt.Sprint(c.WaitForSync(ctx)), "wait for the cache of pods: context deadline exceeded")
		c.Observe(func(CachedType) Handler[metav1.Object] { return Handler[metav1.Object]{} })
		go c.Unsynced() // as /readyz during the start
		defer fakeapi.FillCaches(t, c)()
		if got := c.Unsynced(); len(got) > 0 {
			t.Errorf("unsynced after the sync = %v", got)
		}
		if _, err := c.Leases(); err == nil {
			t.Error("a type was added after the start; its informer would never run")
		}
	})
}

// Handlers receive trimmed pods in the order of registration. Counts follow before.
func TestHandlersReceiveChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(t)
		c := New(client, Config{Name: t.Name()})
		pods := fakeapi.Must(c.Pods())
		var calls []string
		for _, name := range []string{"first", "second"} {
			record := func(event string, pod *Pod) {
				calls = append(calls, fmt.Sprintf("%s: %s %s, %d pods", name, event, pod.Name, pods.CountInNamespace("shop")))
			}
			fakeapi.NoError(t, pods.Handle(Handler[*Pod]{
				Add:    func(pod *Pod) { record("add", pod) },
				Update: func(old, pod *Pod) { record("move from "+old.NodeName+" to "+pod.NodeName, pod) },
				Delete: func(pod *Pod) { record("delete", pod) },
			}))
		}
		defer fakeapi.FillCaches(t, c)()
		if pods.Handle(Handler[*Pod]{}) == nil {
			t.Error("a handler was added after the start, without the first list")
		}
		put := func(name, node string) {
			pod := fullPod()
			pod.Name, pod.Spec.NodeName = name, node
			client.Put(pod)
		}
		remove := func(name, _ string) { client.Remove("pods", "shop", name) }
		for _, tt := range []struct {
			do         func(name, node string)
			name, node string
			want       string
		}{
			{put, "a", "", "add a, 1 pods"},
			{put, "b", "n1", "add b, 2 pods"},
			{put, "a", "n1", "move from  to n1 a, 2 pods"},
			{put, "b", "n2", "move from n1 to n2 b, 2 pods"}, // another pod of that name
			{remove, "a", "", "delete a, 1 pods"},
			{remove, "b", "", "delete b, 0 pods"},
		} {
			calls = nil
			tt.do(tt.name, tt.node)
			synctest.Wait()
			fakeapi.WantEqual(t, "calls", calls, []string{"first: " + tt.want, "second: " + tt.want})
		}
		fakeapi.Want(t, "namespaces with counts of deleted pods", len(pods.inNamespace), 0)
	})
}

// Observers see the objects of all caches. A tombstone is no deletion event.
func TestObserversSeeCachedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		client := fake.NewClientset(node)
		c := New(client, Config{Name: t.Name()})
		fakeapi.Must(c.Nodes())
		var calls []string
		record := func(event string) func(metav1.Object) {
			return func(o metav1.Object) { calls = append(calls, event+" "+o.GetName()) }
		}
		c.Observe(func(of CachedType) Handler[metav1.Object] {
			calls = append(calls, of.Resource.Resource+" "+of.Kind)
			c.RunAlongside(func(ctx context.Context) {
				if <-of.Synced; ctx.Err() == nil {
					calls = append(calls, "synced")
				}
			})
			return Handler[metav1.Object]{Add: record("add"), Delete: record("delete"), Missed: record("missed"),
				Update: func(_, o metav1.Object) { record("update")(o) }}
		})
		stop := fakeapi.FillCaches(t, c)
		fakeapi.NoError(t, client.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}))
		synctest.Wait()
		stop()
		handle := func(o *corev1.Node) { record("delete")(o) }
		all := fanOut[*corev1.Node]{{Delete: handle, Missed: func(o *corev1.Node) { record("missed")(o) }}, {Delete: handle}}
		for _, obj := range []any{node, cache.DeletedFinalStateUnknown{Obj: node}, cache.DeletedFinalStateUnknown{Obj: "unexpected"}, &corev1.Pod{}} {
			all.eventHandler().OnDelete(obj)
		}
		fakeapi.WantEqual(t, "calls", calls, []string{"nodes Node", "add n", "synced", "delete n", "delete n", "delete n", "missed n", "delete n"})
	})
}

func TestTrimLease(t *testing.T) {
	holder := "node-1"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "ns", UID: "u", ResourceVersion: "3", Labels: map[string]string{"a": "b"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	if got := trimLease(lease, []string{"ns"}, false); got.Labels != nil || *got.Spec.HolderIdentity != holder || got.ResourceVersion != "3" {
		t.Errorf("wanted lease trimmed to %+v", got)
	}
	if got := trimLease(lease, []string{"other"}, false); got.Spec.HolderIdentity != nil || got.Name != "l" || got.UID != "u" {
		t.Errorf("other lease trimmed to %+v", got)
	}
	lease.OwnerReferences = []metav1.OwnerReference{{UID: "node"}}
	lease.Finalizers, lease.DeletionTimestamp = []string{"x/y"}, &metav1.Time{Time: time.Unix(1e9, 0)}
	for _, owners := range []bool{false, true} {
		if got := trimLease(lease, nil, owners); (got.OwnerReferences != nil) != owners || (got.Finalizers != nil) != owners || (got.DeletionTimestamp != nil) != owners {
			t.Errorf("owners wanted: %v, lease trimmed to %+v", owners, got)
		}
	}
}

func TestTrimNode(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"x": "y"}},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: "Ready", Status: "True"}},
			Images:      []corev1.ContainerImage{{SizeBytes: 1}},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
		},
	}
	if n := trimNode(node.DeepCopy(), NodeCPU); len(n.Status.Allocatable) != 1 || n.Status.Allocatable.Cpu().Value() != 2 {
		t.Errorf("allocatable on request = %v", n.Status.Allocatable)
	}
	if n := trimNode(node, 0); n.Status.Allocatable != nil || n.Status.Images != nil || n.Annotations != nil ||
		n.Labels["zone"] != "a" || len(n.Status.Conditions) != 1 || !n.Spec.Unschedulable || len(n.Spec.Taints) != 1 {
		t.Errorf("trimmed node = %+v", n)
	}
}

func TestHighest(t *testing.T) {
	for _, tt := range []struct {
		name     string
		versions []string
		want     string
	}{
		{"none", nil, ""},
		{"a higher one", []string{"9", "10"}, "10"},
		{"a lower one", []string{"10", "9"}, "10"},
		{"what is no version", []string{"", "0", "abc", "7", "", "0", "abc"}, "7"},
	} {
		var h highest
		for _, v := range tt.versions {
			h.raiseTo(v)
		}
		fakeapi.Want(t, tt.name, h.get(), tt.want)
	}
}
