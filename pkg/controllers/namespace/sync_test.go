package namespace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientdiscovery "k8s.io/client-go/discovery"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
)

const (
	statusWrite  = "update namespaces/status"
	finalization = "create namespaces/finalize"
)

// balancer404 is the response of a load balancer, not of the API server.
var balancer404 = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "namespaces"}, "test", "404 page not found", 0, true)

func broken(groupVersion string) error {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	return &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{gv: errors.New("down")}}
}

// TestSync runs one sync, after the grace period.
func TestSync(t *testing.T) {
	pods, configMaps := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "configmaps"}
	widgets := schema.GroupResource{Group: "a.io", Resource: "widgets"}
	forbidden := apierrors.NewForbidden(pods, "", errors.New("no"))
	canceled := fmt.Errorf("fence: %w", context.Canceled)
	once, twice := []string{"get namespaces"}, []string{"get namespaces", "get namespaces"}
	reported, finalized := append(twice, statusWrite), append(twice, finalization)
	all := []string{"list pods", "list configmaps"}
	widgetsFail := func(err error, seenAgo time.Duration) func(*bench) {
		return func(b *bench) {
			b.deletions.Store(types.UID("uid-1"), b.clock.Now().Add(-seenAgo))
			b.serve("a.io/v1", fakeapi.APIType("widgets", "delete", "list"))
			b.respond("list", "widgets", nil, err)
		}
	}
	lists := func(err error, resources ...string) func(*bench) {
		return func(b *bench) {
			for _, resource := range resources {
				b.respond("list", resource, nil, err)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		ns     func(*corev1.Namespace) // nil leaves the namespace as it is
		setup  func(*bench)
		fails  string   // text of the error
		sent   []string // requests about content
		client []string // requests about the namespace
	}{
		{"active", func(ns *corev1.Namespace) { ns.DeletionTimestamp, ns.Status.Phase = nil, corev1.NamespaceActive }, nil, "", nil, once},
		{"finalized", func(ns *corev1.Namespace) { ns.Spec.Finalizers, ns.Finalizers = nil, []string{"orphan"} }, nil, "", nil, once},
		{"another name", func(ns *corev1.Namespace) { ns.Name = "other" }, nil, "", nil, once},
		{"empty", nil, nil, "", all, finalized},
		{"finalizers of others alone", func(ns *corev1.Namespace) {
			ns.Spec.Finalizers = []corev1.FinalizerName{"other/x"}
			ns.Status.Conditions, _ = withConditions(nil, report{finalizers: []string{"other/x"}}, metav1.NewTime(epoch))
		}, nil, "", all, twice},

		{"pods that cannot be listed", nil, lists(forbidden, "pods"), "list pods", []string{"list pods"}, append(once, statusWrite)},
		{"pods that do not exist", nil, lists(apierrors.NewNotFound(pods, ""), "pods"), errHidden.Error(), []string{"list pods"}, append(once, statusWrite)},
		{"pods that cannot be deleted", nil, func(b *bench) {
			b.respond("list", "pods", item("Pod", "v1", "a/b"), nil)
			b.respond("delete-collection", "pods", nil, forbidden)
			b.respond("delete", "pods", nil, forbidden)
		}, "delete pods", []string{"list pods", "delete-collection pods", "delete pods"}, append(once, statusWrite)},
		{"pods that remain", nil, func(b *bench) { b.respond("list", "pods", item("Pod", "v1", "a/b"), nil) }, "",
			[]string{"list pods", "delete-collection pods", "list pods"}, append(once, statusWrite)},
		{"no pods in a complete discovery", nil, func(b *bench) {
			lists(apierrors.NewNotFound(pods, ""), "pods")(b)
			b.discovery.Lists = []*metav1.APIResourceList{fakeapi.CoreList(fakeapi.APIType("configmaps", "delete", "list"))}
		}, "", all, finalized},
		{"no pods in an incomplete discovery", nil, func(b *bench) {
			lists(apierrors.NewNotFound(pods, ""), "pods")(b)
			b.discovery.Lists, b.discovery.Err = []*metav1.APIResourceList{fakeapi.CoreList()}, broken("b.io/v1")
		}, "", []string{"list pods"}, append(once, statusWrite)},

		// client-go takes a 404 for /api as an API without core types. Finalization would orphan their objects.
		{"discovery without core types", nil, func(b *bench) {
			b.discovery.Lists = []*metav1.APIResourceList{fakeapi.APIList("apps/v1", fakeapi.APIType("deployments", "delete", "list"))}
		}, "", []string{"list pods", "list deployments"}, reported},
		{"an API server that is not ready", nil, func(b *bench) { b.discovery.Status = http.StatusInternalServerError }, "", all, reported},
		{"an unparsable group version", nil, func(b *bench) { b.serve("a/b/c", fakeapi.APIType("x", "delete", "list")) }, "", all, reported},
		{"an API that is skipped", nil, func(b *bench) {
			b.serve("a.io/v1", fakeapi.APIType("hang", "delete", "list"))
			b.unresponsive.record(schema.GroupVersion{Group: "a.io", Version: "v1"}, "test", true)
		}, "", all, reported}, // without an error: the back-off would outlast the repair

		{"the term ends at the pods", nil, lists(canceled, "pods"), "fence", []string{"list pods"}, once},
		{"the term ends at another type", nil, lists(canceled, "configmaps"), "fence", all, twice},

		// A 405 means that the type has no list, except for pods.
		{"a type without list", nil, lists(apierrors.NewMethodNotSupported(configMaps, "list"), "configmaps"), "",
			append(all, "delete-collection configmaps"), finalized},
		{"pods without list", nil, lists(apierrors.NewMethodNotSupported(pods, "list"), "pods"), errHidden.Error(),
			[]string{"list pods", "delete-collection pods"}, append(once, statusWrite)},

		// An extension API server may have no storage, or no tenant, for a namespace. A restarting server does not know
		// the path. The time of the deletion is that of another clock.
		{"no storage", func(ns *corev1.Namespace) { ns.DeletionTimestamp = &metav1.Time{Time: epoch.Add(2 * time.Hour)} },
			widgetsFail(apierrors.NewNotFound(widgets, ""), 3*time.Minute), "", append(all, "list widgets"), finalized},
		{"no storage soon after the deletion", nil, widgetsFail(apierrors.NewNotFound(widgets, ""), time.Minute), errHidden.Error(),
			append(all, "list widgets"), reported},
		{"an unknown path", nil,
			widgetsFail(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", widgets, "", "404 page not found", 0, true), 3*time.Minute), errHidden.Error(),
			append(all, "list widgets"), reported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := terminating()
			if tt.ns != nil {
				tt.ns(ns)
			}
			b := newBench(t, ns)
			if tt.setup != nil {
				tt.setup(b)
			}
			next, err := b.sync(t.Context(), "test")
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			if blocked := slices.Contains(tt.client, statusWrite); blocked && next.RequeueAfter == 0 {
				t.Error("no further sync")
			}
			sent := b.content()
			if len(sent) > 1 {
				slices.Sort(sent[1:]) // types are listed side by side
				slices.Sort(tt.sent[1:])
			}
			expect(t, sent, tt.sent...)
			b.client.Wants(t, tt.client...)
		})
	}
}

// Another client changes the namespace between the two reads. The second read causes no conflict.
func TestFinalizersOfOthersStay(t *testing.T) {
	b := newBench(t, terminating())
	b.client.On("get namespaces", func(call int, _ clienttesting.Action) (runtime.Object, error) {
		return terminating(func(ns *corev1.Namespace) {
			ns.ResourceVersion = fmt.Sprint(call)
			ns.Spec.Finalizers = []corev1.FinalizerName{"other/x", "kubernetes", "a/b", "other/x"}
		}), nil
	})
	b.mustSync(t)
	b.client.Wants(t, "get namespaces", "get namespaces", statusWrite, finalization)
	sent := b.client.Actions()[3].(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
	fakeapi.WantEqual(t, "finalizers", sent.Spec.Finalizers, []corev1.FinalizerName{"a/b", "other/x"})
	fakeapi.Want(t, "resource version", sent.ResourceVersion, "2")
}

func TestReplacedNamespaceKeepsItsContent(t *testing.T) {
	for name, failure := range map[string]error{ // of the second read; nil: another namespace
		"another UID": nil, "no response": apierrors.NewTimeoutError("slow", 1), "no response in time": context.DeadlineExceeded, "load balancer": balancer404,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, terminating())
			b.respond("list", "configmaps", item("ConfigMap", "v1"), nil)
			b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				b.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, terminating(func(ns *corev1.Namespace) { ns.UID = "another" }), failure
				})
				return true, &metav1.List{}, nil
			})
			if _, err := b.sync(t.Context(), "test"); !errors.Is(err, failure) {
				t.Errorf("error %v, want %v", err, failure)
			}
			b.client.Wants(t, "get namespaces", "get namespaces")
			expect(t, b.content(), "list pods")
			fakeapi.Want(t, "state kept", b.states.Len() == 1, failure != nil)
		})
	}
}

func TestConflictsOfFinalizeAreRetriedAndBounded(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "test", errors.New("changed"))
	for _, tt := range []struct {
		failure         error
		failures, tries int
		uid             types.UID // after the first failure
		want            error
	}{
		{conflict, 4, 5, "uid-1", nil},
		{conflict, 100, 5, "uid-1", conflict},
		{conflict, 100, 1, "uid-2", nil},
		{apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "test"), 1, 1, "uid-1", nil},
		{balancer404, 1, 1, "uid-1", balancer404},
	} {
		t.Run(fmt.Sprint(tt.failures, tt.failure, tt.uid), func(t *testing.T) {
			b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.UID, ns.ResourceVersion = tt.uid, "2" }))
			b.client.On(finalization, func(try int, a clienttesting.Action) (runtime.Object, error) {
				sent := a.(clienttesting.CreateAction).GetObject().(*corev1.Namespace).ResourceVersion
				if try > 1 && sent != "2" {
					t.Errorf("retried with the resource version %s that met the conflict", sent)
				}
				if try <= tt.failures {
					return nil, tt.failure
				}
				return terminating(), nil
			})
			fakeapi.WantError(t, "finalize", b.finalize(t.Context(), terminating()), tt.want)
			fakeapi.Want(t, "tries", b.client.Count(finalization), tt.tries)
		})
	}
}

// Another type fails and is listed alone for a while. Then an object is in a type that was empty before.
func TestLastPassListsAllTypes(t *testing.T) {
	b := newBench(t, terminating())
	b.serve("apps/v1", fakeapi.APIType("broken", "delete", "list"), fakeapi.APIType("filled", "delete", "list"))
	failing, late := true, false
	b.respondWhile(&failing, "list", "broken", nil, apierrors.NewInternalError(errors.New("conversion webhook is down")))
	b.respondWhile(&late, "list", "filled", item("Any", "v1"), nil)
	b.respond("delete", "*", nil, nil)
	for pass, lists := range []int{4, 2} {
		if _, err := b.sync(t.Context(), "test"); !apierrors.IsInternalError(err) {
			t.Errorf("error %v", err)
		}
		fakeapi.Want(t, fmt.Sprint("lists of pass ", pass), len(b.content()), lists)
		b.metadata.ClearActions()
	}
	failing, late = false, true
	for range 3 {
		b.mustSync(t)
	}
	if b.finalized() {
		t.Fatal("finalized with an object")
	}
	late = false
	b.mustFinalize(t)
}

func TestNothingButPodsBeforeTheGraceIsOver(t *testing.T) {
	b := newBench(t, terminating())
	for _, grace := range []time.Duration{0, 5 * time.Second} {
		b.deletions.Clear()
		b.metadata.ClearActions()
		b.cfg.Grace = grace
		fakeapi.Want(t, fmt.Sprint("next sync with a grace of ", grace), b.mustSync(t).RequeueAfter, max(grace, minGrace))
	}
	expect(t, b.content(), "list pods")
	b.clock.Step(5*time.Second - 1)
	left := true
	b.respondWhile(&left, "list", "pods", deleting("Pod", "v1", "a/b"), nil)
	b.mustSync(t)
	left = false
	b.mustSync(t)
	expect(t, b.content(), "list pods", "list pods", "list pods")
	b.clock.Step(1)
	b.mustSync(t)
	expect(t, b.content()[3:], "list pods", "list configmaps")
}

// The time of the first sight outlives a term, and ends with the namespace. The event of the deletion may precede the
// response to finalize.
func TestFirstSightOfADeletion(t *testing.T) {
	b := newBench(t, terminating())
	b.client.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.clock.Step(time.Second)
		b.deletions.Delete(types.UID("uid-1"))
		return true, terminating(), nil
	})
	b.beginTerm()
	b.mustSync(t)
	b.deletions.Range(func(uid, seen any) bool {
		t.Errorf("kept %v at %v", uid, seen)
		return true
	})
	fakeapi.Want(t, "finalized", b.finalized(), true)
}
