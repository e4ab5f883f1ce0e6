package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

const proxiedAccount = "gc-proxied"

func proxied(t *testing.T) (*faults.Proxy, func(*rest.Config) *rest.Config) {
	t.Helper()
	proxy := faults.New(t, cluster.ManagerConfig(proxiedAccount, garbagecollector.Name))
	return proxy, func(own *rest.Config) *rest.Config {
		through := proxy.Config()
		through.TLSClientConfig.CertData, through.TLSClientConfig.KeyData = own.TLSClientConfig.CertData, own.TLSClientConfig.KeyData
		return through
	}
}

// TestOrphansAreNotLostWhenTheirWatchStandsStill: orphaning lists dependents that the watch has not shown.
func TestOrphansAreNotLostWhenTheirWatchStandsStill(t *testing.T) {
	proxy, through := proxied(t)
	start(t, through)
	ns := cluster.Namespace(t)
	settled(t, ns)
	frozen := proxy.FreezeWatches(faults.Watches(configMaps.Resource))
	owner := create(t, secrets, ns, "owner")
	var all []thing
	for n := range 50 {
		all = append(all, create(t, configMaps, ns, fmt.Sprint("dependent-", n), ownedBy(owner)))
	}
	owner.delete(t, metav1.DeletePropagationOrphan)
	gone(t, soon, owner)
	frozen.Thaw()
	orphaned(t, ns, all...)
}

// orphaned requires that dependents stay and have lost their references.
func orphaned(t *testing.T, ns string, dependents ...thing) {
	t.Helper()
	settled(t, ns)
	alive(t, dependents...)
	for _, o := range dependents {
		owners(t, soon, o)
	}
}

// testLostAnswers loses every second response to deletes and patches.
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
	orphaned(t, ns, stay...)
}

// TestSlowDeletesDoNotBlockOtherNamespaces collects dependents whose deletion a webhook delays by more than the usual
// deadline of a write. Dependents in another namespace go meanwhile.
func TestSlowDeletesDoNotBlockOtherNamespaces(t *testing.T) {
	const count = 30
	c := start(t, nil)
	slow, quick := cluster.Namespace(t), cluster.Namespace(t)
	settled(t, quick)
	owner := create(t, secrets, slow, "owner")
	var leave []thing
	for n := range count {
		leave = append(leave, create(t, configMaps, slow, fmt.Sprint("dependent-", n), ownedBy(owner)))
	}
	hook := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"DELETE"}, Resource: configMaps.Resource, Namespace: slow, TimeoutSeconds: 15, Ignore: true,
	})
	hook.Hang()
	owner.delete(t, metav1.DeletePropagationBackground)
	controlplane.Eventually(t, soon, func(context.Context) error {
		if hook.Requests() == 0 {
			return errors.New("no delete has reached the webhook")
		}
		return nil
	})
	for range 3 {
		settled(t, quick)
	}
	if deleted := c.writes(t, controlplane.ByNamespace(slow), controlplane.ByVerb("delete")); len(deleted) > 0 {
		t.Errorf("dependents elsewhere were collected only after slow deletes had ended:\n%s", deleted)
	}
	controlplane.Eventually(t, soon, func(context.Context) error {
		if done := c.writes(t, controlplane.ByNamespace(slow), controlplane.ByVerb("delete"), controlplane.ByCode(200)); len(done) == 0 {
			return errors.New("no slow delete has succeeded")
		}
		return nil
	})
	hook.Heal()
	gone(t, soon, leave...)
}
