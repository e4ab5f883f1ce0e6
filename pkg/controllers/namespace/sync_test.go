package namespace

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/pkg/controllers/internal/discovery"
)

func TestActiveNamespaceCostsOneRead(t *testing.T) {
	b := newBench(t, terminating(func(ns *corev1.Namespace) {
		ns.DeletionTimestamp, ns.Status.Phase = nil, corev1.NamespaceActive
	}))
	b.mustSync(t)
	expect(t, requests(b.client.Actions(), b.metadata.Actions()), "get namespaces")
}

func TestMissingNamespaceIsDone(t *testing.T) {
	b := newBench(t)
	b.mustSync(t)
	expect(t, requests(b.client.Actions(), b.metadata.Actions()), "get namespaces")
}

func TestFinalizedNamespaceCostsOneRead(t *testing.T) {
	b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.Spec.Finalizers, ns.Finalizers = nil, []string{"orphan"} }))
	b.mustSync(t)
	expect(t, requests(b.client.Actions(), b.metadata.Actions()), "get namespaces")
}

func TestEmptyNamespaceIsListedOnceAndFinalized(t *testing.T) {
	b := newBench(t, terminating(func(ns *corev1.Namespace) {
		ns.Spec.Finalizers = []corev1.FinalizerName{"other/x", "kubernetes", "a/b", "other/x"}
	}))
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions()), "list pods", "list configmaps")
	// It stays, so its conditions are brought up to date.
	expect(t, requests(b.client.Actions()), "get namespaces", "get namespaces", "update namespaces/status", "create namespaces/finalize")
	if t.Failed() {
		return
	}
	actions := b.client.Actions()
	sent := actions[3].(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
	if diff := cmp.Diff([]corev1.FinalizerName{"a/b", "other/x"}, sent.Spec.Finalizers); diff != "" {
		t.Error(diff)
	}
}

func TestForeignFinalizersAreVerifiedAndNotFinalized(t *testing.T) {
	b := newBench(t, terminating(func(ns *corev1.Namespace) {
		ns.Spec.Finalizers = []corev1.FinalizerName{"other/x"}
		ns.Status.Conditions, _ = withConditions(nil, report{finalizers: []string{"other/x"}}, metav1.NewTime(epoch))
	}))
	b.mustSync(t)
	expect(t, requests(b.client.Actions()), "get namespaces", "get namespaces")
	expect(t, requests(b.metadata.Actions()), "list pods", "list configmaps")
}

func TestReplacedNamespaceKeepsItsContent(t *testing.T) {
	failed := apierrors.NewTimeoutError("no answer", 1)
	for _, tt := range []struct {
		name     string
		response error // to the second read; nil: another namespace
	}{
		{"another UID", nil},
		{"no answer", failed},
		{"no answer in time", context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			b.stays()
			b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				b.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, terminating(func(ns *corev1.Namespace) { ns.UID = "another" }), tt.response
				})
				return true, &metav1.List{}, nil
			})
			if _, err := b.sync(t.Context(), "test"); !errors.Is(err, tt.response) {
				t.Errorf("error %v, want %v", err, tt.response)
			}
			expect(t, requests(b.client.Actions()), "get namespaces", "get namespaces")
			expect(t, requests(b.metadata.Actions()), "list pods")
			states := 0
			b.states.ForEach(func(*state) { states++ })
			if kept := states == 1; kept != (tt.response != nil) {
				t.Errorf("state kept: %v", kept)
			}
		})
	}
}

func TestOneDiscoveryServesTheSyncsAfterTheGate(t *testing.T) {
	b := newBench(t, terminating())
	b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "stays", DeletionTimestamp: &metav1.Time{Time: epoch}}}}}}, nil
	})
	for range 3 {
		b.mustSync(t)
		b.clock.Step(time.Second)
	}
	if b.discovery.asked != 1 {
		t.Errorf("discovery was asked %d times, want once", b.discovery.asked)
	}
}

func TestConflictsAreRetriedAndBounded(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "test", errors.New("changed"))
	for _, tt := range []struct {
		conflicts, tries int
		want             error
	}{{0, 1, nil}, {1, 2, nil}, {4, 5, nil}, {100, 5, conflict}} {
		t.Run(fmt.Sprint(tt.conflicts), func(t *testing.T) {
			b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.ResourceVersion = "2" }))
			tries := 0
			b.client.PrependReactor("create", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
				sent := a.(clienttesting.CreateAction).GetObject().(*corev1.Namespace).ResourceVersion
				if tries > 0 && sent != "2" {
					t.Errorf("retried with the resource version %s that met the conflict", sent)
				}
				if tries++; tries <= tt.conflicts {
					return true, nil, conflict
				}
				return true, terminating(), nil
			})
			done, err := b.finalize(t.Context(), terminating())
			if !errors.Is(err, tt.want) || tries != tt.tries || done != (err == nil) {
				t.Errorf("%v, done %v, after %d tries, want %v after %d", err, done, tries, tt.want, tt.tries)
			}
		})
	}
}

func TestConflictWithANamesakeEndsTheSync(t *testing.T) {
	b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.UID = "uid-2" }))
	tries := 0
	b.client.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		tries++
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "test", errors.New("other UID"))
	})
	if done, err := b.finalize(t.Context(), terminating()); done || err != nil || tries != 1 {
		t.Errorf("done %v, %v after %d tries, want not done, no error after 1", done, err, tries)
	}
}

func TestNotFoundIsNotRemembered(t *testing.T) {
	item := &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "x"}}}}}
	for range 2 {
		b := newBench(t, terminating())
		listed := 0
		b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if listed++; listed > 1 {
				return true, &metav1.List{}, nil
			}
			return true, item, nil
		})
		b.metadata.PrependReactor("delete-collection", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "")
		})
		p := b.newPurger(terminating(), b.states.For("test", terminating().UID))
		r := discovery.Pods
		r.GroupVersionResource = corev1.SchemeGroupVersion.WithResource("configmaps")
		for range 2 {
			listed = 0
			if out := p.purge(t.Context(), r); out.err != nil || out.remaining != 0 {
				t.Errorf("outcome %+v", out)
			}
		}
		once := []string{"list configmaps", "delete-collection configmaps", "delete configmaps", "list configmaps"}
		expect(t, requests(b.metadata.Actions()), append(once, once...)...)
	}
}

// Another type is listed alone for a while. Then an object is in a type that was empty before.
func TestLastPassListsAllTypes(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.lists = []*metav1.APIResourceList{coreList(typ("pods", "delete", "list"), typ("secrets", "delete", "list"), typ("configmaps", "delete", "list"))}
	held, late := true, false
	show := func(resource string, shown *bool) {
		b.metadata.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return *shown, itemOf("Any", "v1"), nil
		})
		b.metadata.PrependReactor("delete", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	}
	show("configmaps", &held)
	show("secrets", &late)
	b.mustSync(t)
	b.mustSync(t)
	held, late = false, true
	for range 3 {
		b.mustSync(t)
	}
	if b.finalized() {
		t.Fatal("finalized with a secret")
	}
	late = false
	b.mustFinalize(t)
}

func TestNothingButPodsBeforeTheGraceIsOver(t *testing.T) {
	b := newBench(t, terminating())
	b.deletions = deletions{}
	b.cfg.Grace = 5 * time.Second
	if next := b.mustSync(t); next.RequeueAfter != 5*time.Second {
		t.Errorf("next look in %v, want 5s", next.RequeueAfter)
	}
	expect(t, requests(b.metadata.Actions()), "list pods")
	b.clock.Step(5*time.Second - 1)
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions()), "list pods", "list pods")
	b.clock.Step(1)
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions())[2:], "list pods", "list configmaps")
}
