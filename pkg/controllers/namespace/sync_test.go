package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/discovery"
)

func TestNewRejectsBadConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Workers: -1}, {Workers: 1, Grace: -1}, {Workers: 1, SyncPeriod: -1}} {
		if _, err := New(cfg, Deps{Metrics: prometheus.NewRegistry()}); err == nil {
			t.Errorf("New accepts %+v", cfg)
		}
	}
}

func TestNewSendsNothing(t *testing.T) {
	client := fake.NewClientset()
	known := caches.New(client, caches.Config{Name: t.Name()})
	namespaces, err := known.Namespaces()
	if err != nil {
		t.Fatal(err)
	}
	pods, err := known.Pods()
	if err != nil {
		t.Fatal(err)
	}
	disco := &fakeDiscovery{err: errors.New("down")}
	if _, err := New(Config{Workers: 1}, Deps{Client: client, Discovery: disco, Namespaces: namespaces, Pods: pods,
		Clock: testclock.NewFakeClock(epoch), Metrics: prometheus.NewRegistry()}); err != nil {
		t.Errorf("New: %v", err)
	}
	if n := len(client.Actions()) + disco.asked; n != 0 {
		t.Errorf("New sent %d requests", n)
	}
}

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
	expect(t, requests(b.client.Actions()), "get namespaces", "update namespaces/status", "create namespaces/finalize")
	if t.Failed() {
		return
	}
	actions := b.client.Actions()
	sent := actions[2].(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
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
	expect(t, requests(b.client.Actions()), "get namespaces")
	expect(t, requests(b.metadata.Actions()), "list pods", "list configmaps")
}

// Meanwhile somebody else may have finished the namespace, and another may have its name. Whatever is in that stays, and what it says proves nothing.
func TestANamespaceIsReadAgainBeforeOthersThanPodsAreDeleted(t *testing.T) {
	silent := apierrors.NewTimeoutError("no answer", 1)
	for _, tt := range []struct {
		name   string
		verbs  []string // of the type that is to be deleted
		answer error    // to the second read; nil: another namespace
		want   string
		fails  error
	}{
		{"objects", []string{"delete", "deletecollection", "list"}, nil, "list configmaps", nil},
		{"objects, one by one", []string{"delete", "list"}, nil, "list configmaps", nil},
		{"what cannot be listed", []string{"delete", "deletecollection"}, nil, "", nil},
		{"no answer", []string{"delete", "deletecollection", "list"}, silent, "list configmaps", silent},
		{"no answer in time", []string{"delete", "deletecollection", "list"}, context.DeadlineExceeded, "list configmaps", context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			b.discovery.lists = []*metav1.APIResourceList{coreList(typ("pods", "delete", "deletecollection", "list"), typ("configmaps", tt.verbs...))}
			item := itemOf("ConfigMap", "v1")
			item.Items[0].Object.(*metav1.PartialObjectMetadata).CreationTimestamp = metav1.NewTime(epoch.Add(time.Minute))
			b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, item, nil })
			b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				b.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, terminating(func(ns *corev1.Namespace) { ns.UID = "another" }), tt.answer
				})
				return true, &metav1.List{}, nil
			})
			if _, err := b.sync(t.Context(), "test"); !errors.Is(err, tt.fails) {
				t.Errorf("error %v, want %v", err, tt.fails)
			}
			expect(t, requests(b.client.Actions()), "get namespaces", "get namespaces")
			expect(t, requests(b.metadata.Actions()), slices.DeleteFunc([]string{"list pods", tt.want}, func(r string) bool { return r == "" })...)
			if len(b.silence.of) > 0 {
				t.Error("a type was taken for one that does not answer")
			}
			if _, remembered := b.memories["test"]; remembered != (tt.answer != nil) {
				t.Errorf("remembered: %v", remembered)
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
	}{{0, 1, nil}, {1, 2, nil}, {4, 5, nil}, {100, 5, errRetry}} {
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
		p := b.newPurger(terminating(), b.memory(terminating()), b.clock.Now())
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

// A pass over an API with thousands of types may take longer than emptiness is trusted. It ends when a list counts for good.
func TestASlowPassProvesWhatItHasSeen(t *testing.T) {
	b := newBench(t, terminating())
	b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.clock.Step(span + time.Second)
		return true, &metav1.List{}, nil
	})
	for range 3 { // the third is sent after all creates
		b.mustSync(t)
	}
	expect(t, requests(b.metadata.Actions()), "list pods", "list configmaps", "list pods", "list configmaps", "list pods", "list configmaps")
	actions := requests(b.client.Actions())
	if last := actions[len(actions)-1]; last != "create namespaces/finalize" {
		t.Errorf("last request %s", last)
	}
}

func TestNothingButPodsBeforeTheGraceIsOver(t *testing.T) {
	b := newBench(t, terminating())
	b.deletions = deletions{}
	b.cfg.Grace = 5 * time.Second
	if next := b.mustSync(t); next.after != 5*time.Second {
		t.Errorf("next look in %v, want 5s", next.after)
	}
	expect(t, requests(b.metadata.Actions()), "list pods")
	b.clock.Step(5*time.Second - 1)
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions()), "list pods", "list pods")
	b.clock.Step(1)
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions())[2:], "list pods", "list configmaps")
}

