package caches

import (
	"fmt"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
)

// A type that is not Kubernetes' own is watched on a real API server in examples/own-controller.
func TestWatchOfAnyType(t *testing.T) {
	c := New(fake.NewClientset(), Config{Name: t.Name(), REST: func(content *rest.ContentConfig) (rest.Interface, error) {
		return rest.RESTClientFor(&rest.Config{Host: "https://127.0.0.1", ContentConfig: *content})
	}})
	services := corev1.SchemeGroupVersion.WithResource("services")
	first := fakeapi.Must(Watch[*corev1.Service](c, services, Options{}))
	if second := fakeapi.Must(Watch[*corev1.Service](c, services, Options{})); second.informer != first.informer || len(c.Types()) != 1 {
		t.Error("asking twice for a type made two caches")
	}
	own := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "foos"}
	rejects := func(name, want string, err error) {
		t.Helper()
		fakeapi.WantPart(t, "error of "+name, fmt.Sprint(err), want)
	}
	_, err := Watch[*corev1.Pod](c, services, Options{})
	rejects("a type that is watched as another", "watch services: the store is a caches.Store[*k8s.io/api/core/v1.Service]", err)
	_, err = Watch[*corev1.Service](c, own, Options{})
	rejects("a type of another group", "watch foos: *v1.Service is not of example.com/v1", err)
	_, err = Watch[*corev1.Service](c, own, Options{Scheme: runtime.NewScheme()})
	rejects("a type its scheme does not know", "watch foos: no kind is registered for the type v1.Service", err)
	_, err = Watch[*corev1.Service](New(fake.NewClientset(), Config{Name: "clientless"}), services, Options{})
	rejects("without a client", "Config.REST is missing", err)
	_, err = Watch[*metav1.ObjectMeta](c, own, Options{Scheme: runtime.NewScheme()})
	rejects("no object", "*v1.ObjectMeta is no API type", err)
	c.started = true
	_, err = Watch[*corev1.Secret](c, corev1.SchemeGroupVersion.WithResource("secrets"), Options{})
	rejects("after the start", "watch secrets: the informers have been started", err)
	rejects("a handler after the start", "the informers have been started", first.Handle(Handler[*corev1.Service]{}))
	fakeapi.Want(t, "watched types", len(c.Types()), 1)
}

// A controller may watch a type of Kubernetes before the controllers that trim the type.
func TestTypeRequestedTwiceIsTrimmed(t *testing.T) {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "rs", OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: new(true)}},
			ManagedFields: []metav1.ManagedFieldsEntry{{}}},
	}
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(rs)
		c := New(client, Config{})
		plain := fakeapi.Must(Watch[*appsv1.ReplicaSet](c, appsv1.SchemeGroupVersion.WithResource("replicasets"),
			Options{Informer: c.factory.Apps().V1().ReplicaSets().Informer}))
		sets := fakeapi.Must(c.ReplicaSets())
		again := fakeapi.Must(c.ReplicaSets())
		defer fakeapi.FillCaches(t, c)()
		if len(sets.ControlledBy("owner")) != 1 || len(again.ControlledBy("owner")) != 1 || len(plain.List()) != 1 {
			t.Errorf("found %d, %d and %d ReplicaSets, want 1", len(sets.ControlledBy("owner")), len(again.ControlledBy("owner")), len(plain.List()))
		}
		if fields := plain.List()[0].ManagedFields; fields != nil {
			t.Error("a ReplicaSet is kept whole")
		}
	})
}

// Leases of two namespaces come in one stream of all Leases.
func TestTypeOfOneNamespace(t *testing.T) {
	for _, tt := range []struct {
		namespaces     []string
		watched, error string
	}{
		{[]string{"kube-system", "kube-node-lease"}, "", "<nil>"},
		{[]string{"kube-system"}, "kube-system", "watch leases: only namespace kube-system is watched"},
	} {
		c := New(fake.NewClientset(), Config{LeaseNamespaces: tt.namespaces})
		fakeapi.Must(c.Leases())
		fakeapi.Must(c.Leases())
		fakeapi.Want(t, fmt.Sprint("watched namespace for ", tt.namespaces), c.Types()[0].Namespace, tt.watched)
		_, err := Watch[*coordinationv1.Lease](c, coordinationv1.SchemeGroupVersion.WithResource("leases"), Options{})
		fakeapi.Want(t, "error", fmt.Sprint(err), tt.error)
	}
}
