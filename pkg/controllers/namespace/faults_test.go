package namespace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	clienttesting "k8s.io/client-go/testing"
)

func TestNothingButPodsIsTouchedWhen(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	pods := &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "p", Finalizers: []string{"a/b"}}}}}}
	for _, tt := range []struct {
		name   string
		list   runtime.Object
		err    error
		remove error
		fails  bool
	}{
		{"pods cannot be listed", nil, forbidden, nil, true},
		{"listing pods times out", nil, context.DeadlineExceeded, nil, true},
		{"pods cannot be deleted", pods, nil, forbidden, true},
		{"pods are said not to exist", nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, ""), nil, true},
		{"pods remain", pods, nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, tt.list, tt.err })
			for _, verb := range []string{"delete-collection", "delete"} {
				b.metadata.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.remove })
			}
			_, err := b.sync(t.Context(), "test")
			if (err != nil) != tt.fails {
				t.Errorf("error %v, want one: %v", err, tt.fails)
			}
			for _, r := range requests(b.metadata.Actions(), b.client.Actions()) {
				if strings.HasPrefix(r, "list ") && r != "list pods" || strings.HasPrefix(r, "delete") && r != "delete-collection pods" && r != "delete pods" || strings.Contains(r, "finalize") {
					t.Errorf("request %s", r)
				}
			}
		})
	}
}

func TestPartialDiscoveryPurgesOnceAndWaits(t *testing.T) {
	b := newBench(t, terminating())
	broken := &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "b.io", Version: "v1"}: errors.New("down")}}
	b.discovery.err = broken
	purge := []string{"list pods", "list configmaps"}

	b.mustSync(t)
	expect(t, requests(b.metadata.Actions()), purge...)
	b.clock.Step(time.Second)
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions())[2:], "list pods")

	b.discovery.err = nil
	b.clock.Step(30 * time.Second)
	b.mustFinalize(t)
	expect(t, requests(b.metadata.Actions())[4:], purge...) // all types once more, in one pass
}

// client-go takes a 404 for /api as an API without core types. Finalization would orphan their objects.
func TestDiscoveryWithoutCoreTypes(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.lists = []*metav1.APIResourceList{served("apps/v1", typ("deployments", "delete", "list"))}
	b.mustSync(t)
	for _, r := range requests(b.client.Actions()) {
		if strings.Contains(r, "finalize") {
			t.Error("finalized")
		}
	}
}

// An API server that has just started shows its own types before those of CustomResourceDefinitions. Objects of
// discovered types are deleted meanwhile.
func TestNamespaceWaitsForAReadyAPIServer(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.Status = http.StatusInternalServerError
	custom := true
	b.metadata.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return custom, &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "a.io/v1", Kind: "Widget"}, ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "w", Finalizers: []string{"a/b"}}}}}}, nil
	})
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions(), b.client.Actions()), "list pods", "list configmaps", "get namespaces", "get namespaces", "update namespaces/status")
	ns, err := b.client.CoreV1().Namespaces().Get(t.Context(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const reason = "discovery fails: API server is not ready: Internal error occurred: failing checks: poststarthook/start-apiextensions-controllers"
	if !slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == deletionBlocked && c.Message == reason }) {
		t.Errorf("conditions %v, want the reason %q", ns.Status.Conditions, reason)
	}

	b.discovery.Status = 0
	b.discovery.lists = append(b.discovery.lists, served("a.io/v1", typ("widgets", "delete", "list")))
	b.clock.Step(time.Second)
	b.mustSync(t)
	if b.finalized() {
		t.Error("finalized before the custom resource is gone")
	}
	custom = false
	b.mustFinalize(t)
}

// An aggregated API has more types than are listed together, and every request times out.
func TestSilentAPIBlocksNoOtherType(t *testing.T) {
	const types = 30
	b := newBench(t, terminating())
	var silent []metav1.APIResource
	for i := range types {
		silent = append(silent, typ(fmt.Sprintf("hang-%02d", i), "delete", "list"))
	}
	b.discovery.lists = append(b.discovery.lists, served("a.io/v1", silent...), served("z.io/v1", typ("answered", "delete", "list")))
	tried := map[string]bool{}
	inThisPass := 0
	b.metadata.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Group != "a.io" {
			return false, nil, nil
		}
		tried[a.GetResource().Resource] = true
		inThisPass++
		return true, nil, context.DeadlineExceeded
	})
	for pass := 0; len(tried) < types; pass++ {
		if pass == 1000 {
			t.Fatalf("%d of %d types were tried in %d passes", len(tried), types, pass)
		}
		inThisPass = 0
		b.clock.Step(10 * time.Second)
		if _, err := b.sync(t.Context(), "test"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("pass %d: error %v", pass, err)
		}
		if inThisPass > typesAtOnce {
			t.Errorf("pass %d: %d types were tried after the first had not answered", pass, inThisPass)
		}
	}
	if n := len(slices.DeleteFunc(requests(b.metadata.Actions()), func(r string) bool { return r != "list answered" })); n != 1 {
		t.Errorf("the type that answers was listed %d times, want once", n)
	}
}

func TestBadGroupVersionPurgesTheRest(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.lists = append(b.discovery.lists, served("a/b/c", typ("x", "delete", "list")))
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions()), "list pods", "list configmaps")
	expect(t, requests(b.client.Actions()), "get namespaces", "get namespaces", "update namespaces/status")
}

func TestBeingStoppedIsNoError(t *testing.T) {
	refused := fmt.Errorf("fence: %w", context.Canceled)
	for _, resource := range []string{"pods", "configmaps"} {
		b := newBench(t, terminating())
		b.metadata.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if _, err := b.sync(t.Context(), "test"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		for _, r := range requests(b.client.Actions()) {
			if r != "get namespaces" {
				t.Errorf("request %s", r)
			}
		}
	}
}

func TestStatusWritesMayFail(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.err = errors.New("down")
	b.client.PrependReactor("update", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "test", errors.New("no"))
	})
	b.mustSync(t)
	if next := b.mustSync(t); next.RequeueAfter == 0 {
		t.Error("no further sync")
	}
}

// The event of the deletion may precede the response to finalize.
func TestFinalizedNamespaceLeavesNoState(t *testing.T) {
	b := newBench(t, terminating())
	b.client.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.clock.Step(time.Second)
		b.deletions.forget("uid-1")
		return true, terminating(), nil
	})
	b.mustSync(t)
	if len(b.deletions.first) > 0 {
		t.Errorf("noted: %v", b.deletions.first)
	}
	if sum := sumOf(t, b.metrics.duration); sum != 1.1 {
		t.Errorf("the deletion took %v s by the metric, want 1.1", sum)
	}
}

// The content of all other types goes, and the namespace waits for the failing type.
func TestFailingTypeBlocksNoOther(t *testing.T) {
	const count = 30
	b := newBench(t, terminating())
	var apis []metav1.APIResource
	for i := range count {
		apis = append(apis, typ(fmt.Sprintf("type-%02d", i), "delete", "list"))
	}
	b.discovery.lists = append(b.discovery.lists, served("apps/v1", apis...))
	broken := true
	b.metadata.PrependReactor("list", "type-00", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, apierrors.NewInternalError(errors.New("conversion webhook is down"))
		}
		return false, nil, nil
	})
	if _, err := b.sync(t.Context(), "test"); !apierrors.IsInternalError(err) {
		t.Errorf("error %v", err)
	}
	if n := len(requests(b.metadata.Actions())); n != 2+count { // pods, configmaps
		t.Errorf("%d lists, want one of each type", n)
	}
	if actions := requests(b.client.Actions()); slices.Contains(actions, "create namespaces/finalize") {
		t.Error("finalized although a type could not be listed")
	}
	broken = false
	b.metadata.ClearActions()
	b.mustSync(t)
	expect(t, requests(b.metadata.Actions()), "list pods", "list type-00")
	b.mustFinalize(t)
	if n := len(requests(b.metadata.Actions())); n != 2+2+count {
		t.Errorf("%d lists, want all types once more before the end", n)
	}
}

// A CRD with an object goes while the namespace waits, and a CRD with another object comes.
func TestTypesComeAndGo(t *testing.T) {
	b := newBench(t, terminating())
	with := func(name string) []*metav1.APIResourceList {
		return []*metav1.APIResourceList{coreList(typ("pods", "delete", "list")), served("a.io/v1", typ(name, "delete", "deletecollection", "list"))}
	}
	gone := false
	b.metadata.PrependReactor("list", "goings", func(clienttesting.Action) (bool, runtime.Object, error) {
		if gone {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "goings"}, "")
		}
		return true, itemOf("Going", "a.io/v1"), nil
	})
	removed := false
	b.metadata.PrependReactor("list", "comings", func(clienttesting.Action) (bool, runtime.Object, error) {
		if removed {
			return false, nil, nil
		}
		return true, itemOf("Coming", "a.io/v1"), nil
	})
	b.metadata.PrependReactor("delete-collection", "comings", func(clienttesting.Action) (bool, runtime.Object, error) {
		removed = true
		return true, nil, nil
	})
	b.discovery.lists = with("goings")
	b.mustSync(t)
	gone, b.discovery.lists = true, with("comings")
	b.clock.Step(10*time.Second + 1)
	b.mustFinalize(t)
	if !removed {
		t.Error("the object of the type that came is an orphan")
	}
}

// Objects that are stored in another version than the preferred version are listed and deleted in that version.
func TestFailingConversionWebhookBlocksNoType(t *testing.T) {
	unconverted := apierrors.NewInternalError(errors.New("conversion webhook for a.io/v1, Kind=Legacy failed"))
	for _, tt := range []struct {
		name    string
		failure error
		want    []string
		left    bool
	}{
		{"stored in v1", unconverted, []string{"list v2", "list v1", "delete-collection v1", "list v1"}, false},
		{"another failure", apierrors.NewInternalError(errors.New("etcdserver: leader changed")), []string{"list v2"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, terminating())
			legacies := typ("legacies", "delete", "deletecollection", "list")
			b.discovery.groups = append(b.discovery.groups, group("a.io", "v2", "v1"))
			b.discovery.lists = append(b.discovery.lists, served("a.io/v2", legacies), served("a.io/v1", legacies))
			var sent []string
			removed := false
			b.metadata.PrependReactor("*", "legacies", func(a clienttesting.Action) (bool, runtime.Object, error) {
				sent = append(sent, a.GetVerb()+" "+a.GetResource().Version)
				switch {
				case a.GetResource().Version == "v2":
					return true, nil, tt.failure
				case a.GetVerb() == "delete-collection":
					removed = true
				case !removed:
					return true, itemOf("Legacy", "a.io/v1"), nil
				}
				return true, &metav1.List{}, nil
			})
			_, err := b.sync(t.Context(), "test")
			if (err != nil) != tt.left {
				t.Errorf("error %v, want one: %v", err, tt.left)
			}
			expect(t, sent, tt.want...)
			if finalized := slices.Contains(requests(b.client.Actions()), "create namespaces/finalize"); finalized == tt.left {
				t.Errorf("finalized: %v, want %v", finalized, !tt.left)
			}
		})
	}
}

func itemOf(kind, version string) *metav1.List {
	return &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "x"}}}}}
}

// The back-off after an error would outlast the repair.
func TestSkippedAPIIsNoError(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.lists = append(b.discovery.lists, served("a.io/v1", typ("hang", "delete", "list")))
	b.unresponsive.record(schema.GroupVersion{Group: "a.io", Version: "v1"}, "test", true)
	if next := b.mustSync(t); next.RequeueAfter == 0 {
		t.Error("no further sync")
	}
	expect(t, requests(b.client.Actions()), "get namespaces", "get namespaces", "update namespaces/status")
}

// A server that restarts, or that does not know a new type yet, returns 404 for a discovered type.
func TestDiscoveredTypeWith404IsNotEmpty(t *testing.T) {
	b := newBench(t, terminating())
	failing := true
	b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.clock.Step(1)
		return failing, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "")
	})
	if _, err := b.sync(t.Context(), "test"); !errors.Is(err, errHidden) {
		t.Errorf("error %v, want that the type is hidden", err)
	}
	_, _ = b.sync(t.Context(), "test")
	if b.discovery.asked != 2 {
		t.Errorf("%d discoveries, want another one after the 404", b.discovery.asked)
	}
	if b.finalized() {
		t.Error("finalized")
	}
	failing = false
	b.mustFinalize(t)
}

// An extension API server may have no storage, or no tenant, for a namespace. A restarting server does not know
// the path.
func TestExtensionServerWithoutStorage(t *testing.T) {
	widgets := schema.GroupResource{Group: "a.io", Resource: "widgets"}
	for _, tt := range []struct {
		name    string
		err     error
		deleted time.Duration // ago
		want    bool
	}{
		{"a Status", apierrors.NewNotFound(widgets, ""), 3 * time.Minute, true},
		{"a Status soon after the deletion", apierrors.NewNotFound(widgets, ""), time.Minute, false},
		{"an unknown path", apierrors.NewGenericServerResponse(http.StatusNotFound, "get", widgets, "", "404 page not found", 0, true), 3 * time.Minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			deleted := metav1.NewTime(epoch.Add(time.Hour - tt.deleted))
			b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.DeletionTimestamp = &deleted }))
			b.discovery.lists = append(b.discovery.lists, served("a.io/v1", typ("widgets", "delete", "list")))
			b.metadata.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.err })
			_, _ = b.sync(t.Context(), "test")
			if got := slices.Contains(requests(b.client.Actions()), "create namespaces/finalize"); got != tt.want {
				t.Errorf("finalized: %v, want %v", got, tt.want)
			}
		})
	}
}

// A 405 means that the type has no list, except for pods.
func TestTypeWithoutListIsDeletedUnseen(t *testing.T) {
	for _, tt := range []struct {
		resource string
		want     []string
		fails    bool
	}{
		{"configmaps", []string{"list pods", "list configmaps", "delete-collection configmaps"}, false},
		{"pods", []string{"list pods", "delete-collection pods"}, true},
	} {
		t.Run(tt.resource, func(t *testing.T) {
			b := newBench(t, terminating())
			b.metadata.PrependReactor("list", tt.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: tt.resource}, "list")
			})
			if _, err := b.sync(t.Context(), "test"); (err != nil) != tt.fails {
				t.Errorf("error %v, want one: %v", err, tt.fails)
			}
			expect(t, requests(b.metadata.Actions()), tt.want...)
			if finalized := slices.Contains(requests(b.client.Actions()), "create namespaces/finalize"); finalized == tt.fails {
				t.Errorf("finalized: %v, want %v", finalized, !tt.fails)
			}
		})
	}
}

// Requests that time out and requests that are skipped have the same text: every change would cause a write.
func TestConditionsDoNotAlternate(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.lists = append(b.discovery.lists, served("a.io/v1", typ("hang", "delete", "list")))
	port := 40000
	b.metadata.PrependReactor("list", "hang", func(clienttesting.Action) (bool, runtime.Object, error) {
		port++
		return true, nil, &url.Error{Op: "Get", URL: "https://server", Err: fmt.Errorf("read 10.0.0.1:%d: %w", port, context.DeadlineExceeded)}
	})
	for range 10 {
		_, _ = b.sync(t.Context(), "test")
		b.clock.Step(4 * time.Second) // now it is tried, now not
	}
	written := slices.DeleteFunc(requests(b.client.Actions()), func(r string) bool { return r != "update namespaces/status" })
	if len(written) != 1 {
		t.Errorf("%d status writes, want one", len(written))
	}
}
