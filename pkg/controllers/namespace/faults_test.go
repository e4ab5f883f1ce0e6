package namespace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
)

func TestPartialDiscoveryPurgesOnceAndWaits(t *testing.T) {
	b := newBench(t, terminating())
	b.discovery.Err = broken("b.io/v1")
	purge := []string{"list pods", "list configmaps"}

	b.mustSync(t)
	expect(t, b.content(), purge...)
	b.clock.Step(time.Second)
	b.mustSync(t)
	expect(t, b.content()[2:], "list pods")

	b.discovery.Err = nil
	b.clock.Step(30 * time.Second)
	b.mustFinalize(t)
	expect(t, b.content()[4:], purge...) // all types once more, in one pass
}

// An aggregated API has more types than are listed together, and every request times out.
func TestSilentAPIBlocksNoOtherType(t *testing.T) {
	const types = 30
	b := newBench(t, terminating())
	var silent []metav1.APIResource
	for i := range types {
		silent = append(silent, fakeapi.APIType(fmt.Sprintf("hang-%02d", i), "delete", "list"))
	}
	b.serve("a.io/v1", silent...)
	b.serve("z.io/v1", fakeapi.APIType("answered", "delete", "list"))
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
			t.Errorf("pass %d: %d types were tried after the first timeout", pass, inThisPass)
		}
	}
	fakeapi.Want(t, "lists of the type that responds", len(slices.DeleteFunc(b.content(), func(r string) bool { return r != "list answered" })), 1)
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// Pods kept the namespace before. A rejection by a policy must replace this reason, a conflict must not.
func TestRejectedFinalizationIsShown(t *testing.T) {
	forbidden, conflict := apierrors.NewForbidden(namespaces, "test", errors.New("policy")), apierrors.NewConflict(namespaces, "test", errors.New("changed"))
	for want, finalizers := range map[string][]string{
		`finalize: namespaces "test" is forbidden: policy`:        nil,
		"the namespace itself is held by its finalizer other/x. ": {"other/x"},
	} {
		b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.Finalizers = finalizers }))
		left := true
		b.respondWhile(&left, "list", "pods", item("Pod", "v1"), nil)
		b.client.On(finalization, func(try int, _ clienttesting.Action) (runtime.Object, error) {
			return nil, map[bool]error{true: conflict, false: forbidden}[try <= finalizeTries]
		})
		b.mustSync(t)
		left = false
		for _, want := range []error{conflict, forbidden, forbidden} {
			_, err := b.sync(t.Context(), "test")
			fakeapi.WantError(t, "sync", err, want)
			fakeapi.Want(t, "conflict in the condition", strings.Contains(b.blocker(), "changed"), false)
		}
		fakeapi.WantPart(t, "condition", b.blocker(), want)
		fakeapi.Want(t, "status writes", b.client.Count(statusWrite), 2)
		fakeapi.Want(t, "requests fail, by the metric", testutil.ToFloat64(b.metrics.blocked.WithLabelValues("test", causeError)), 1)
		ns := fakeapi.Must(b.client.CoreV1().Namespaces().Get(t.Context(), "test", metav1.GetOptions{}))
		fakeapi.Want(t, "condition of kube-controller-manager", ns.Status.Conditions[2].Reason, "ContentDeleted")
	}
}

// A namespace is finalized without conditions. Later syncs write the conditions, which show the finalizers of the
// namespace.
func TestStatusWritesMayFail(t *testing.T) {
	forbidden, conflict := apierrors.NewForbidden(namespaces, "test", errors.New("no")), apierrors.NewConflict(namespaces, "test", nil)
	for _, tt := range []struct{ discovery, failure error }{
		{errors.New("down"), forbidden},
		{nil, conflict},
	} {
		t.Run(tt.failure.Error(), func(t *testing.T) {
			b := newBench(t, terminating(func(ns *corev1.Namespace) { ns.Finalizers = []string{"other/x"} }))
			b.discovery.Err = tt.discovery
			failing := true
			b.client.PrependReactor("update", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return failing, nil, tt.failure })
			b.cfg.SyncPeriod = time.Minute
			if next, err := b.sync(t.Context(), "test"); !errors.Is(err, tt.failure) || next.RequeueAfter == 0 {
				t.Errorf("error %v, next sync after %v, want %v and a sync", err, next.RequeueAfter, tt.failure)
			}
			fakeapi.Want(t, "finalized", b.finalized(), tt.discovery == nil)
			failing, b.discovery.Err = false, nil
			b.clock.Step(time.Second)
			b.client.ClearActions()
			for range 3 {
				b.mustSync(t)
			}
			fakeapi.WantPart(t, "condition", b.blocker(), "held by its finalizer other/x")
		})
	}
}

// A CRD with an object goes while the namespace waits, and a CRD with another object comes.
func TestTypesComeAndGo(t *testing.T) {
	b := newBench(t, terminating())
	with := func(name string) []*metav1.APIResourceList {
		return []*metav1.APIResourceList{fakeapi.CoreList(fakeapi.APIType("pods", "delete", "list")), fakeapi.APIList("a.io/v1", fakeapi.APIType(name, "delete", "deletecollection", "list"))}
	}
	b.respond("list", "goings", item("Going", "a.io/v1"), nil)
	removed, left := false, true
	b.respondWhile(&left, "list", "comings", item("Coming", "a.io/v1"), nil)
	b.metadata.PrependReactor("delete-collection", "comings", func(clienttesting.Action) (bool, runtime.Object, error) {
		removed, left = true, false
		return true, nil, nil
	})
	b.discovery.Lists = with("goings")
	b.mustSync(t)
	b.respond("list", "goings", nil, apierrors.NewNotFound(schema.GroupResource{Resource: "goings"}, ""))
	b.discovery.Lists = with("comings")
	b.clock.Step(10*time.Second + 1)
	b.mustFinalize(t)
	fakeapi.Want(t, "the object of the type that came was deleted", removed, true)
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
			legacies := fakeapi.APIType("legacies", "delete", "deletecollection", "list")
			b.discovery.Groups = append(b.discovery.Groups, fakeapi.APIGroup("a.io", "v2", "v1"))
			b.serve("a.io/v2", legacies)
			b.serve("a.io/v1", legacies)
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
					return true, item("Legacy", "a.io/v1"), nil
				}
				return true, &metav1.List{}, nil
			})
			if _, err := b.sync(t.Context(), "test"); (err != nil) != tt.left {
				t.Errorf("error %v, want one: %v", err, tt.left)
			}
			expect(t, sent, tt.want...)
			fakeapi.Want(t, "finalized", b.finalized(), !tt.left)
		})
	}
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
	fakeapi.Want(t, "discoveries, with another after the 404", b.discovery.Count(), 2)
	fakeapi.Want(t, "finalized", b.finalized(), false)
	failing = false
	b.mustFinalize(t)
}

// Requests that time out and requests that are skipped have the same text: every change would cause a write.
func TestConditionsDoNotAlternate(t *testing.T) {
	port := 40000
	reset := func() error {
		port++
		return &url.Error{Op: "Get", URL: "https://server", Err: fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:443: %w", port, context.DeadlineExceeded)}
	}
	for name, setup := range map[string]func(*bench){
		"list": func(b *bench) {
			b.serve("a.io/v1", fakeapi.APIType("hang", "delete", "list"))
			b.metadata.PrependReactor("list", "hang", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, reset() })
		},
		"discovery": func(b *bench) { b.discovery.Called = func() { b.discovery.Err = reset() } },
		"discovery of a group": func(b *bench) {
			b.discovery.Called = func() {
				b.discovery.Err = &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "a.io", Version: "v1"}: reset()}}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, terminating())
			setup(b)
			for range 10 {
				_, _ = b.sync(t.Context(), "test")
				b.clock.Step(4 * time.Second) // now it is tried, now not
			}
			fakeapi.Want(t, "status writes", b.client.Count(statusWrite), 1)
		})
	}
}
