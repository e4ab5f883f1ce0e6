package caches

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// The fake clientset covers wiring: informers and handlers.
// Behaviour on a real API server is in test/integration.

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestOnlyWhatWasAskedForIsWatchedAndOnlyOnce(t *testing.T) {
	c := New(fake.NewClientset(), Config{Name: t.Name()})
	first := must[*Pods](t)(c.Pods())
	if second := must[*Pods](t)(c.Pods()); first != second {
		t.Error("asking twice for pods made two caches")
	}
	must[*Nodes](t)(c.Nodes())
	var got []string
	for _, typ := range c.Types() {
		got = append(got, typ.Resource.Resource)
	}
	if want := []string{"pods", "nodes"}; !slices.Equal(got, want) {
		t.Errorf("watched types = %v, want %v", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer c.Shutdown()
	defer cancel()
	if got, want := c.Unsynced(), []string{"pods", "nodes"}; !slices.Equal(got, want) {
		t.Errorf("unsynced before the start = %v, want %v", got, want)
	}
	c.Start(ctx)
	if err := c.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := c.Unsynced(); len(got) > 0 {
		t.Errorf("unsynced after the sync = %v", got)
	}
	if _, err := c.Leases(); err == nil {
		t.Error("a type could be added after the start; its informer would never run")
	}
}

func TestWaitForSyncNamesTheTypeAndEnds(t *testing.T) {
	c := New(fake.NewClientset(), Config{Name: t.Name()})
	must[*Pods](t)(c.Pods())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := c.WaitForSync(ctx) // never started
	if err == nil || err.Error() != "wait for the cache of pods: context deadline exceeded" {
		t.Errorf("WaitForSync = %v", err)
	}
}

func TestHandlersGetOurTypes(t *testing.T) {
	client := fake.NewClientset(fullPod())
	c := New(client, Config{Name: t.Name()})
	pods := must[*Pods](t)(c.Pods())
	events := make(chan string, 10)
	if err := pods.Handle(Handler[*Pod]{
		Add:    func(p *Pod) { events <- "add " + p.Name + " on " + p.NodeName },
		Update: func(old, new *Pod) { events <- "update " + old.NodeName + " to " + new.NodeName },
		Delete: func(p *Pod) { events <- "delete " + p.Name },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer c.Shutdown()
	defer cancel()
	c.Start(ctx)
	if err := c.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	awaitWatch(t, client)
	moved := fullPod()
	moved.Spec.NodeName, moved.ResourceVersion = "n2", "8"
	if _, err := client.CoreV1().Pods("shop").Update(ctx, moved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("shop").Delete(ctx, "web-x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"add web-x on n1", "update n1 to n2", "delete web-x"} {
		if got := <-events; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
}

func TestEveryHandlerOfATypeIsTold(t *testing.T) {
	c := New(fake.NewClientset(fullPod()), Config{Name: t.Name()})
	pods := must[*Pods](t)(c.Pods())
	told := make(chan string, 10)
	for _, name := range []string{"first", "second"} {
		if err := pods.Handle(Handler[*Pod]{Add: func(*Pod) { told <- name }}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer c.Shutdown()
	defer cancel()
	c.Start(ctx)
	if err := c.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second"} { // both before the sync is over
		if got := <-told; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	}
	if pods.Handle(Handler[*Pod]{}) == nil {
		t.Error("a handler could be added after the start; it would have missed the first list")
	}
}

func TestLastKnown(t *testing.T) {
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x"}}
	for _, tt := range []struct {
		name   string
		obj    any
		want   *Pod
		missed bool
	}{
		{"the object itself", pod, pod, false},
		{"a tombstone", cache.DeletedFinalStateUnknown{Key: "shop/web-x", Obj: pod}, pod, true},
		{"a tombstone of another type", cache.DeletedFinalStateUnknown{Key: "shop/web-x", Obj: "what"}, nil, true},
		{"another type", &corev1.Node{}, nil, false},
	} {
		if got, missed, ok := lastKnown[*Pod](tt.obj); got != tt.want || ok != (tt.want != nil) || missed != tt.missed {
			t.Errorf("%s: %v, missed %v, %v", tt.name, got, missed, ok)
		}
	}
}

func TestPodIndexes(t *testing.T) {
	bound, orphan := TrimPod(fullPod()), &Pod{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "shop"}}
	for _, tt := range []struct {
		name  string
		index cache.IndexFunc
		pod   *Pod
		want  []string
	}{
		{"controlled", controllerIndex, bound, []string{"owner"}},
		{"orphan", controllerIndex, orphan, []string{"orphan/shop"}},
		{"bound", nodeIndex, bound, []string{"n1"}},
		{"unbound", nodeIndex, orphan, nil},
	} {
		if got, err := tt.index(tt.pod); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
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
	if n := trimNode(node, 0); n.Status.Allocatable != nil || n.Status.Images != nil || n.Annotations != nil || n.Labels["zone"] != "a" || len(n.Status.Conditions) != 1 || !n.Spec.Unschedulable || len(n.Spec.Taints) != 1 {
		t.Errorf("trimmed node = %+v", n)
	}
}

func TestLeasesOfOneNamespaceNeedNoOtherStream(t *testing.T) {
	for _, tt := range []struct {
		name       string
		namespaces []string
		want       string // the watched namespace
	}{
		{"two namespaces, one stream of all", []string{"kube-system", "kube-node-lease"}, ""},
		{"one namespace", []string{"kube-system"}, "kube-system"},
	} {
		c := New(fake.NewClientset(), Config{Name: t.Name(), LeaseNamespaces: tt.namespaces})
		must[*Leases](t)(c.Leases())
		if got := c.Types()[0].Namespace; got != tt.want {
			t.Errorf("%s: watches namespace %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPodsAreCountedAsHandlersAreTold(t *testing.T) {
	client := fake.NewClientset()
	c := New(client, Config{Name: t.Name()})
	pods := must[*Pods](t)(c.Pods())
	told := make(chan [3]int, 10) // pods of the namespace, on n1, on n2
	note := func() { told <- [3]int{pods.CountInNamespace("shop"), pods.CountOnNode("n1"), pods.CountOnNode("n2")} }
	if err := pods.Handle(Handler[*Pod]{Add: func(*Pod) { note() }, Update: func(_, _ *Pod) { note() }, Delete: func(*Pod) { note() }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer c.Shutdown()
	defer cancel()
	c.Start(ctx)
	if err := c.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	pod := func(name, node string) *corev1.Pod {
		p := fullPod()
		p.Name, p.Spec.NodeName = name, node
		return p
	}
	api := client.CoreV1().Pods("shop")
	for _, tt := range []struct {
		name string
		do   func() error
		want [3]int
	}{
		{"one that is not bound", func() error { _, err := api.Create(ctx, pod("a", ""), metav1.CreateOptions{}); return err }, [3]int{1, 0, 0}},
		{"one that is", func() error { _, err := api.Create(ctx, pod("b", "n1"), metav1.CreateOptions{}); return err }, [3]int{2, 1, 0}},
		{"the first is bound", func() error { _, err := api.Update(ctx, pod("a", "n1"), metav1.UpdateOptions{}); return err }, [3]int{2, 2, 0}},
		{"one of the name came on another node unseen", func() error { _, err := api.Update(ctx, pod("b", "n2"), metav1.UpdateOptions{}); return err }, [3]int{2, 1, 1}},
		{"one goes", func() error { return api.Delete(ctx, "a", metav1.DeleteOptions{}) }, [3]int{1, 0, 1}},
		{"the last goes", func() error { return api.Delete(ctx, "b", metav1.DeleteOptions{}) }, [3]int{}},
	} {
		if err := tt.do(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := <-told; got != tt.want {
			t.Errorf("%s: counted %v, want %v", tt.name, got, tt.want)
		}
	}
	if n := len(pods.inNamespace.counts) + len(pods.onNode.counts); n > 0 {
		t.Errorf("%d counts are kept of what is gone", n)
	}
}
