package garbagecollector_test

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"minikcm/test/controlplane"
)

// TestAnAPIServerThatLearnsOfTypesLate: a second API server lags behind a new definition and responds 404 for its
// objects. Nothing with such an owner is deleted.
func TestAnAPIServerThatLearnsOfTypesLate(t *testing.T) {
	ns := cluster.Namespace(t)
	_, cfg := account()
	startProcess(t, "--kubeconfig="+cluster.KubeconfigFor(t, cluster.AtSecond(cfg)))
	settled(t, ns)
	second, err := dynamic.NewForConfig(cluster.AtSecond(cluster.Config()))
	controlplane.Must(t, err)
	cluster.FreezeSecond("customresourcedefinitions")
	t.Cleanup(cluster.ThawSecond)
	typ := newType()
	defineType(t, typ)
	owner, doomed := newWidget(t, typ, ns, "owner"), newWidget(t, typ, ns, "doomed")
	if _, err := second.Resource(typ).Namespace(ns).Get(t.Context(), "owner", metav1.GetOptions{}); err == nil {
		t.Fatal("the second API server knows the type")
	}
	var stay, leave []thing
	for n := range 5 {
		stay = append(stay, create(t, configMaps, ns, fmt.Sprint("stays-", n), ownedBy(owner)))
		leave = append(leave, create(t, configMaps, ns, fmt.Sprint("leaves-", n), ownedBy(doomed)))
	}
	settled(t, ns)
	alive(t, append(stay, leave...)...)
	doomed.delete(t, metav1.DeletePropagationBackground)
	settled(t, ns)
	alive(t, append(stay, leave...)...)
	cluster.ThawSecond()
	gone(t, 2*soon, leave...)
	settled(t, ns)
	alive(t, append(stay, owner)...)
	if now, err := doomed.now(t, t.Context()); err != nil || now != nil {
		t.Error(errors.Join(err, fmt.Errorf("%v is still there", doomed)))
	}
}
