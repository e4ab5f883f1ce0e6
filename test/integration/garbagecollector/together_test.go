package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// TestBesideTheCollectorOfKubeControllerManager requires the same result from both collectors together as from either.
func TestBesideTheCollectorOfKubeControllerManager(t *testing.T) {
	ns := cluster.Namespace(t)
	startProcess(t)
	upstream, err := controlplane.Binary("kube-controller-manager")
	controlplane.Must(t, err)
	const theirs = "system:kube-controller-manager"
	controlplane.StartProgram(t, upstream, "--kubeconfig="+cluster.Kubeconfig(t, theirs, "system:masters"), "--controllers=garbage-collector-controller",
		"--leader-elect=false", "--secure-port=0")
	background, foreground, orphan := create(t, rcs, ns, "background"), create(t, rcs, ns, "foreground"), create(t, rcs, ns, "orphan")
	lives := create(t, rcs, ns, "lives")
	var leave, stay, shared []thing
	for n := range 20 {
		leave = append(leave, create(t, pods, ns, fmt.Sprint("b-", n), ownedBy(background)), create(t, configMaps, ns, fmt.Sprint("f-", n), blockedBy(foreground)))
		stay = append(stay, create(t, pods, ns, fmt.Sprint("o-", n), ownedBy(orphan)))
		shared = append(shared, create(t, secrets, ns, fmt.Sprint("s-", n), ownedBy(background, lives)))
	}
	// Upstream's collector misses orphans that its cache lacks; it has the pods when it reads a later one.
	last := create(t, pods, ns, "last", refers(metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: "never", UID: "never"}))
	controlplane.Eventually(t, 2*soon, func(context.Context) error {
		if len(cluster.AuditLog(t, controlplane.ByUser(theirs), controlplane.ByVerb("get"), controlplane.ByNamespace(ns), controlplane.ByName(last.GetName()))) == 0 {
			return errors.New("it has not looked at the last pod yet")
		}
		return nil
	})
	background.delete(t, metav1.DeletePropagationBackground)
	foreground.delete(t, metav1.DeletePropagationForeground)
	orphan.delete(t, metav1.DeletePropagationOrphan)
	gone(t, 2*soon, append(leave, background, foreground, orphan)...)
	settled(t, ns)
	alive(t, append(append(shared, stay...), lives)...)
	for _, o := range stay {
		owners(t, soon, o)
	}
	for _, o := range shared {
		owners(t, soon, o, lives)
	}
}
