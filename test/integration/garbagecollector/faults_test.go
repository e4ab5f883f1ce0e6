package garbagecollector_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// proxiedAccount is who the API server takes all collectors for that go through a proxy.
const proxiedAccount = "gc-proxied"

// proxied has a collector's requests go through a proxy that can break them.
func proxied(t *testing.T) (*faults.Proxy, func(*rest.Config) *rest.Config) {
	t.Helper()
	var proxy *faults.Proxy
	cfg := cluster.ManagerConfig(proxiedAccount, garbagecollector.Name)
	proxy = faults.New(t, cfg)
	return proxy, func(own *rest.Config) *rest.Config {
		through := proxy.Config()
		through.TLSClientConfig.CertData, through.TLSClientConfig.KeyData = own.TLSClientConfig.CertData, own.TLSClientConfig.KeyData
		return through
	}
}

// readsOf are what the collector asks to find out whether an owner lives.
func readsOf(o thing) faults.Match {
	m := faults.On("get", o.typ.Resource)
	m.Namespace, m.Name = o.GetNamespace(), o.GetName()
	return m
}

// Whatever is answered instead of "there is none", and for however long, nothing that has a living owner goes: references are to an owner that the collector
// does not see, because its watch stands still, so that it has to ask. Once the answers are right, those whose owner is gone go.
func TestAnswersThatProveNothing(t *testing.T) {
	proxy, through := proxied(t)
	c := start(t, through)
	settled(t, cluster.Namespace(t))
	proxy.FreezeWatches(faults.Watches(configMaps.Resource))
	for _, tt := range []struct {
		name  string
		fault faults.Fault
		long  bool // only if there is time
	}{
		{"404 of a server that does not know the type", faults.UnknownPath(), false},
		{"404 that names no object", faults.Refuse(http.StatusNotFound), true},
		{"403", faults.Refuse(http.StatusForbidden), false},
		{"401", faults.Refuse(http.StatusUnauthorized), true},
		{"405", faults.Refuse(http.StatusMethodNotAllowed), true},
		{"500", faults.Refuse(http.StatusInternalServerError), true},
		{"502 of a load balancer", faults.BadGateway(http.StatusBadGateway), true},
		{"503", faults.Refuse(http.StatusServiceUnavailable), true},
		{"410", faults.Refuse(http.StatusGone), true},
		{"an answer that is lost", faults.DropAnswer(), false},
		{"no answer in time", faults.DelayAnswer(time.Minute), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				controlplane.SkipUnlessLong(t)
			}
			t.Parallel()
			ns := cluster.Namespace(t)
			alive1, dead := create(t, configMaps, ns, "alive"), create(t, configMaps, ns, "dead")
			var stay, leave []thing
			for n := range 5 {
				stay = append(stay, create(t, secrets, ns, fmt.Sprint("stays-", n), ownedBy(alive1)))
			}
			first, second := proxy.Inject(readsOf(alive1), tt.fault), proxy.Inject(readsOf(dead), tt.fault)
			for n := range 5 {
				leave = append(leave, create(t, secrets, ns, fmt.Sprint("leaves-", n), ownedBy(dead)))
				stay = append(stay, create(t, secrets, ns, fmt.Sprint("stays-too-", n), ownedBy(alive1)))
			}
			dead.delete(t, metav1.DeletePropagationBackground)
			controlplane.Eventually(t, soon, func(context.Context) error {
				if first.Hits() == 0 || second.Hits() == 0 {
					return fmt.Errorf("%d and %d questions about the owners", first.Hits(), second.Hits())
				}
				return nil
			})
			settled(t, ns)
			alive(t, stay...)
			alive(t, leave...)
			if deletes := c.writes(t, controlplane.ByVerb("delete"), controlplane.ByNamespace(ns), func(e *auditv1.Event) bool { return strings.HasPrefix(e.ObjectRef.Name, "stays") }); len(deletes) > 0 {
				t.Errorf("deleted were\n%v", deletes)
			}
			first.Remove()
			second.Remove()
			gone(t, 2*soon, leave...)
			settled(t, ns)
			alive(t, stay...)
		})
	}
}

// The deletion of the owner is seen, and its dependents, which were made right before it, are not: orphaning them asks for them.
func TestOrphansAreNotLostWhenTheirWatchStandsStill(t *testing.T) {
	proxy, through := proxied(t)
	start(t, through)
	for _, tt := range []struct {
		name   string
		custom bool
	}{{"ConfigMaps, which take strategic patches", false}, {"custom resources, which do not", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := cluster.Namespace(t)
			typ, make := configMaps, func(name string, edits ...edit) thing { return create(t, configMaps, ns, name, edits...) }
			if tt.custom {
				typ = newType()
				defineType(t, typ)
				make = func(name string, edits ...edit) thing { return newWidget(t, typ, ns, name, edits...) }
			}
			settled(t, ns)
			if tt.custom {
				probe := make("probe", refers(metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "never", UID: "never"}))
				gone(t, soon, probe) // the type is watched
			}
			frozen := proxy.FreezeWatches(faults.Watches(typ.Resource))
			owner := create(t, secrets, ns, "owner")
			var all []thing
			for n := range 50 {
				all = append(all, make(fmt.Sprint("dependent-", n), ownedBy(owner)))
			}
			owner.delete(t, metav1.DeletePropagationOrphan)
			gone(t, soon, owner)
			frozen.Thaw()
			settled(t, ns)
			alive(t, all...)
			for _, o := range all {
				owners(t, soon, o)
			}
		})
	}
}

// A type that cannot be listed holds an owner whose dependents are to be kept, for as long as it takes, and its users are told.
func TestAnOrphaningOwnerWaitsForTypesThatCannotBeListed(t *testing.T) {
	controlplane.SkipUnlessLong(t) // the event comes after half a minute
	ns := cluster.Namespace(t)
	proxy, through := proxied(t)
	start(t, through)
	settled(t, ns)
	owner := create(t, secrets, ns, "owner")
	dependent := create(t, configMaps, ns, "dependent", ownedBy(owner))
	list := faults.On("list", configMaps.Resource)
	rule := proxy.Inject(list, faults.Refuse(http.StatusInternalServerError))
	other := create(t, pods, ns, "other")
	owner.delete(t, metav1.DeletePropagationOrphan)
	told(t, 2*soon, owner, "OrphanDeletionBlocked", "configmaps", "remove the finalizer orphan")
	if now, err := owner.now(t, t.Context()); err != nil || now == nil {
		t.Fatalf("the owner is gone: %v", err)
	}
	rule.Remove()
	gone(t, 2*soon, owner)
	settled(t, ns)
	alive(t, dependent, other)
	owners(t, soon, dependent)
}

// Answers to deletes and patches are lost, every second one: the next look finds it done or not done.
func testLostAnswers(t *testing.T, ns string, proxy *faults.Proxy) {
	settled(t, ns)
	m := faults.On("delete,patch", "")
	m.Namespace = ns
	proxy.Inject(m, faults.DropAnswer(), faults.Chance(.5))
	background, foreground, orphan := create(t, rcs, ns, "background"), create(t, rcs, ns, "foreground"), create(t, rcs, ns, "orphan")
	var leave, stay []thing
	for n := range 10 {
		leave = append(leave, create(t, pods, ns, fmt.Sprint("b-", n), ownedBy(background)), create(t, configMaps, ns, fmt.Sprint("f-", n), blockedBy(foreground)))
		stay = append(stay, create(t, pods, ns, fmt.Sprint("o-", n), ownedBy(orphan)))
	}
	background.delete(t, metav1.DeletePropagationBackground)
	foreground.delete(t, metav1.DeletePropagationForeground)
	orphan.delete(t, metav1.DeletePropagationOrphan)
	gone(t, 2*soon, append(leave, background, foreground, orphan)...)
	settled(t, ns)
	alive(t, stay...)
	for _, o := range stay {
		owners(t, soon, o)
	}
}
